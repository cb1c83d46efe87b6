"""Estimated cycles of a run on an ARM processor that is not here.

    emulator.py       runs an artifact on aarch64's engine under qemu, and counts each block of instructions
    counted_run.py    what runs there
    instructions.py   which class an instruction belongs to
    processors.py     what a class costs on a processor, with sources
    estimate.py       cycles of one run, by function

An estimate ranks files made of one network. It is not a time, and is named ``estimated`` wherever it shows.
"""
