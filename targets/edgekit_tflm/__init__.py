"""Microcontrollers and Arm's Ethos-U: a .tflite file on integers throughout, run by TFLite Micro (TFLM).

Chips: Cortex-M, Xtensa and others that TFLM is compiled for; Ethos-U55, U65 and U85 by Arm's compiler vela.
Versions: tflite-micro 0.dev20261023, ethos-u-vela 5.2.

    compile.py       canonical graph -> model.tflite with integer ends, by the compiler of ``tflite``
    kernels.py       the kernels that TFLM has, by the call that registers each in an app
    quant_rules.py   what is computed on integers: everything that can be
    run.py           TFLM's own interpreter, which stands in for the chip; the arena that it records
    vela.py          Ethos-U: which nodes the NPU takes, cycles and memory, all estimated by vela
    c_files.py       what an app compiles: the model as a C array, and model.h

https://github.com/tensorflow/tflite-micro
https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-vela
"""
