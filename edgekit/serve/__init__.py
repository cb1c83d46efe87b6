"""Bundles behind HTTP: the Open Inference Protocol v2, on uvicorn and Starlette (the extra ``serve``).

inference_requests.py   a request's body to arrays, and arrays to an answer; no I/O
served_models.py        sessions with their queues, by name and version
app.py                  the ASGI app: routes, limits, errors
server.py               the socket, the processes, the end
"""
