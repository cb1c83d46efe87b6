"""Bundles behind HTTP and gRPC: the Open Inference Protocol v2, on uvicorn, Starlette and grpcio (the
extra ``serve``).

inference_requests.py   a request's body to arrays, and arrays to an answer; no I/O
served_model.py         a session with its queue
served_models.py        those of a server: versions, candidates, memory
model_table.py           versions: loaded, in use, leaving
model_entries.py        what is known of a version
worker_group.py         several processes with the same models
bundle_names.py         names and versions of bundles
metrics_text.py         metrics of all models
service.py              who may ask, limits, the run: for every protocol
infer_path.py           requests for inference over HTTP
request_body.py         a body, bounded in size and time
http_errors.py          errors as answers
app.py                  the ASGI app: routes
pictures.py             predictions by a model's card, and their streams
openapi.py              the HTTP interface, described
seldom_logged.py        less of what clients cause
tls.py                  certificates
http_protocol.py        uvicorn's, with a time for heads
worker_metrics.py       metrics of several processes
mlserver_runtime.py     bundles in MLServer
grpc_messages.py        the messages of gRPC
grpc_server.py          its calls: tokens, places, time limits
grpc_service.py         the same over gRPC
server.py               the socket, the processes, the end
"""
