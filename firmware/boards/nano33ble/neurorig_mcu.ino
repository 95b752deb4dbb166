/* The Arduino Nano 33 BLE: its USB serial line, micros(), and one output pin for each phase. */
#include <Arduino.h>

extern "C" {
#include "board.h"
#include "protocol.h"
}

static const pin_size_t PINS[] = {2, 3}; /* D2 is high during pre-processing, D3 during inference */

extern "C" {
const char board_name[] = "nano33ble";
const char board_maker[] = FIRMWARE_NAME " on nano33ble";

void board_send(char character) { Serial.write(character); }
void board_drain(void) { Serial.flush(); }
uint32_t board_time_us(void) { return micros(); }
void board_pin(enum phase phase, bool high) { digitalWrite(PINS[phase], high ? HIGH : LOW); }
}

void setup() {
    for (pin_size_t pin : PINS) pinMode(pin, OUTPUT);
    Serial.begin(115200);
    while (!Serial) {
    }
    protocol_start();
}

void loop() {
    while (Serial.available()) protocol_take((char)Serial.read());
}
