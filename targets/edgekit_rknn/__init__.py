"""Rockchip's NPUs: RK3588, RK3576, RK3566, RK3568, RK3562, through rknn-toolkit2.

https://github.com/airockchip/rknn-toolkit2: the compiler and its simulator for Linux x86-64, and the runtime
rknn-toolkit-lite2 for the boards. The compiler runs in an environment of its own (toolchain.py).
"""
