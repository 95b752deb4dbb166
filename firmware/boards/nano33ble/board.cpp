/* The Arduino Nano 33 BLE: its USB serial line, micros(), and one output pin for each phase. */
#include <Arduino.h>

extern "C" {
#include "board.h"
#include "protocol.h"

const char board_name[] = "nano33ble";
const char board_maker[] = FIRMWARE_NAME " on nano33ble";

void board_send(char character) { Serial.write(character); }
void board_drain(void) {
    Serial.flush();
    delay(2); /* flush() does nothing on USB, where a frame lasts 1 ms */
}
uint32_t board_time_us(void) { return micros(); }
void board_pin(enum phase phase, bool high) { digitalWrite(phase == INFERENCE ? 3 : 2, high ? HIGH : LOW); }
}
