#include "words.h"

#include <stddef.h>

#include "board.h"

void say(const char *words) {
    while (*words) board_send(*words++);
}

void say_number(int64_t value) {
    char digits[21];
    size_t count = 0;
    if (value < 0) board_send('-');
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (count) board_send(digits[--count]);
}

void say_line(const char *words) {
    say(words);
    say("\r\n");
}

void say_fact(const char *key, const char *value) {
    say("m-");
    say(key);
    say("-[");
    say(value);
    say_line("]");
}

void say_count(const char *key, int64_t value) {
    say("m-");
    say(key);
    say("-[");
    say_number(value);
    say_line("]");
}

void say_error(const char *why) {
    say("e-[");
    say(why);
    say_line("]");
}

void say_lap(uint32_t time_us) {
    say("m-lap-us-");
    say_number(time_us);
    say_line("");
}

int64_t read_number(const char **at, uint32_t most) {
    int64_t value = 0;
    if (**at < '0' || **at > '9') return -1;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if ((value = 10 * value + (**at - '0')) > most) return -1;
    return value;
}

int read_nibble(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}
