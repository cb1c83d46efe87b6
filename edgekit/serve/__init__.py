"""Bundles behind HTTP and gRPC: the Open Inference Protocol v2, on uvicorn, Starlette and grpcio (the
extra ``serve``).

inference_requests.py   a request's body to arrays, and arrays to an answer; no I/O
served_model.py         a session with its queue
served_models.py        those of a server: versions, candidates, memory
model_table.py           versions: loaded, in use, leaving
model_entries.py        names and versions of bundles, and their states
request_memory.py       memory of requests; a body, bounded in size
service.py              who may ask, limits, the run: for every protocol
infer_path.py           requests for inference over HTTP
http_errors.py          errors as answers
app.py                  the ASGI app: routes
pictures.py             predictions by a model's card, and their streams
openapi.py              the HTTP interface, described
tls.py                  certificates
http_protocol.py        uvicorn's, with limits on requests
websocket_protocol.py   uvicorn's, with memory for messages
connection_watch.py     how many connections, and how long they may wait
grpc_messages.py        the messages of gRPC
grpc_server.py          its calls: tokens, places, time limits
grpc_service.py         the same over gRPC
server.py               the socket, the process, the end
"""
