/* Lines that the protocol writes, and numbers that it reads. */
#ifndef WORDS_H
#define WORDS_H

#include <stdint.h>

void say(const char *words);
void say_number(int64_t value);
void say_line(const char *words);
void say_fact(const char *key, const char *value); /* m-KEY-[VALUE] */
void say_count(const char *key, int64_t value);
void say_error(const char *why); /* e-[WHY] */
void say_lap(uint32_t time_us);

/* The decimal number at *at, or -1 if there is none or it is above `most`. Moves *at behind the number. */
int64_t read_number(const char **at, uint32_t most);
int read_nibble(char digit); /* the value of a hexadecimal digit, or -1 */

#endif
