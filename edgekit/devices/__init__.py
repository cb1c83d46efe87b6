"""Devices other than this machine: reached over ssh or adb, given what they lack, measured; their figures
kept.

address.py        what --device says
transport.py      a command run there: the system's ssh and adb
connection.py     requests to the script that runs there, and connections that are lost
device_script.py  that script: what is there, files received piece by piece, a measurement begun
inventory.py      what is there, and the devices known here
provision.py      what is missing, as wheels from this machine
worker.py         bench, verify and explain as they run there
vendor_tools.py   benchmark_model and trtexec, if there is no Python
measure.py        all of it in order
merge.py          figures into the bundle
"""
