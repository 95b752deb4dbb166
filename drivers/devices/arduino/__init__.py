"""The microcontroller baseline: an Arduino Nano 33 BLE, or QEMU in its place, with the firmware of ``firmware/``."""
