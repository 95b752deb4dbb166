"""The microcontroller baseline: an Arduino Nano 33 BLE, or QEMU instead of it, with the firmware of ``firmware/``."""
