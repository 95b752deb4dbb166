/* The MPS2 board with image AN386, as QEMU models it: UART 0, a microsecond counter, two LEDs as pins. */
#include "board.h"

#include "protocol.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CONTROL REGISTER(0x40004008)
#define UART_DIVIDER REGISTER(0x40004010)
#define LEDS REGISTER(0x40028000)
#define UART_PENDING REGISTER(0x4000400C)
#define NVIC_ENABLE REGISTER(0xE000E100)
#define NVIC_UNPEND REGISTER(0xE000E280)
#define COUNTER REGISTER(0x40028018)
#define PRESCALE REGISTER(0x4002801C)

#define TX_FULL 1u
#define RX_FULL 2u
#define TX_ON 1u
#define RX_ON 2u
#define RX_INTERRUPT 8u
#define RX_PENDING 2u
#define UART_RX_LINE 1u
#define CLOCK_HZ 25000000u

const char board_name[] = "mps2-an386";
const char board_maker[] = "SIM " FIRMWARE_NAME " on mps2-an386";

void board_send(char character) {
    while (UART_STATE & TX_FULL) {
    }
    UART_DATA = (uint8_t)character;
}

/* QEMU's line takes a character as soon as the register is free. */
void board_drain(void) {
    while (UART_STATE & TX_FULL) {
    }
}

uint32_t board_time_us(void) { return COUNTER; }

void board_pin(enum phase phase, bool high) {
    uint32_t bit = 1u << phase;
    LEDS = high ? LEDS | bit : LEDS & ~bit;
}

int main(void) {
    __asm volatile("cpsid i");
    PRESCALE = CLOCK_HZ / 1000000u - 1;
    UART_DIVIDER = 16;
    UART_CONTROL = TX_ON | RX_ON | RX_INTERRUPT;
    NVIC_ENABLE = UART_RX_LINE;
    protocol_start();
    for (;;) {
        while (UART_STATE & RX_FULL) protocol_take((char)UART_DATA);
        UART_PENDING = RX_PENDING;
        NVIC_UNPEND = UART_RX_LINE;
        if (!(UART_STATE & RX_FULL)) __asm volatile("wfi"); /* a character wakes the core; no handler runs */
    }
}
