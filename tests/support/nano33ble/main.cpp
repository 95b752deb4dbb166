#include "board.cpp"
#include "neurorig_mcu.ino"

int main() {
    setup();
    for (;;) loop();
}
