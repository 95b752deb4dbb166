/* The firmware of the microcontroller baseline. D2 is high during pre-processing, and D3 during inference. */
extern "C" {
#include "protocol.h"
}

void setup() {
    pinMode(2, OUTPUT);
    pinMode(3, OUTPUT);
    Serial.begin(115200); /* the rate says nothing on USB */
    while (!Serial) {
    }
    protocol_start();
}

void loop() {
    while (Serial.available()) protocol_take((char)Serial.read());
}
