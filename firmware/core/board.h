/* What the core asks of a board. */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stdint.h>

enum phase { PREPROCESSING, INFERENCE };

extern const char board_name[];      /* as `about` states it */
extern const char board_maker[];     /* as `name` states it; begins with SIM where no chip runs */
void board_send(char character);     /* waits until the line has room */
void board_drain(void);              /* waits until what was sent has left, as far as the board can tell */
uint32_t board_time_us(void);        /* counts microseconds since the start, and wraps at 2^32 */
void board_pin(enum phase phase, bool high);

#endif
