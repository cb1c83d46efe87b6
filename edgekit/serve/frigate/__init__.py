"""Bundles behind Frigate's ``zmq`` detector (the extra ``frigate``).

messages.py        requests and results, checked
worker_process.py  a child process with a session
worker.py          the same, seen from the server
server.py          the socket, the deadline of a frame, the reserve
"""
