#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "build_info.h"
#include "mfe.h"
#include "network.h"

#define SAMPLE_BYTES (2 * MFE_SLICE)
#define INFER_WARMUPS 10 /* of `infer N`, as in the reference firmware */

enum runs { BOTH, ONLY_PREPROCESSING, ONLY_INFERENCE };

static const char *const RUNS[] = {"both", "preprocessing", "inference"};

static char command[COMMAND_MOST];
static size_t length;
static bool too_long;

static int16_t sample[MFE_SLICE];
static uint32_t expected, loaded; /* bytes of the sample that a load awaits, and those that have come */
static bool has_sample, has_features;
static int8_t features[MFE_FEATURES];
static int32_t scores[NETWORK_CLASSES];
static enum runs runs = BOTH;

/* ---- words ---- */

static void text(const char *words) {
    while (*words) board_send(*words++);
}

static void number(int64_t value) {
    char digits[21];
    size_t count = 0;
    if (value < 0) board_send('-');
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (count) board_send(digits[--count]);
}

static void line(const char *words) {
    text(words);
    text("\r\n");
}

static void fact(const char *key, const char *value) {
    text("m-");
    text(key);
    text("-[");
    text(value);
    line("]");
}

static void count_fact(const char *key, int64_t value) {
    text("m-");
    text(key);
    text("-[");
    number(value);
    line("]");
}

static void fail(const char *why) {
    text("e-[");
    text(why);
    line("]");
}

static void lap(uint32_t time_us) {
    text("m-lap-us-");
    number(time_us);
    line("");
}

/* The decimal number at *at, or -1 where there is none, or one above `most`. Moves *at behind it. */
static int64_t read_number(const char **at, uint32_t most) {
    int64_t value = 0;
    if (**at < '0' || **at > '9') return -1;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if ((value = 10 * value + (**at - '0')) > most) return -1;
    return value;
}

static int nibble(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* ---- commands ---- */

static void about(const char *rest) {
    (void)rest;
    fact("about-firmware", FIRMWARE_NAME);
    fact("about-version", FIRMWARE_VERSION);
    fact("about-board", board_name);
    fact("about-source", BUILD_SOURCE_SHA256);
    fact("about-network", BUILD_NETWORK_SHA256);
    fact("about-flags", BUILD_FLAGS);
    count_fact("about-memory", SAMPLE_BYTES);
    count_fact("about-classes", NETWORK_CLASSES);
    count_fact("about-slice", MFE_SLICE);
    count_fact("about-rate", MFE_RATE_HZ);
    count_fact("about-command", COMMAND_MOST);
}

static void name(const char *rest) {
    (void)rest;
    fact("name-dut", board_maker);
}

static void profile(const char *rest) {
    (void)rest;
    fact("profile", "ULPMark for tinyML Firmware V0.0.1");
    fact("model", "asc");
}

static void timestamp(const char *rest) {
    (void)rest;
    lap(board_time_us());
}

static void results(const char *rest) {
    (void)rest;
    text("m-results-[");
    for (size_t k = 0; k < NETWORK_CLASSES; ++k) {
        if (k) board_send(',');
        number(scores[k]);
    }
    line("]");
}

static void forget(void) {
    expected = loaded = 0;
    has_sample = has_features = false;
    memset(scores, 0, sizeof scores);
}

static void load(const char *rest) {
    const char *at = rest;
    int64_t size = read_number(&at, UINT32_MAX);
    if (size != SAMPLE_BYTES || *at) {
        text("e-[a sample has ");
        number(SAMPLE_BYTES);
        line(" bytes: db load takes this number]");
        return;
    }
    forget();
    expected = SAMPLE_BYTES;
    text("m-[Expecting ");
    number(expected);
    line(" bytes]");
}

static void data(const char *rest) {
    for (; *rest; rest += 2) {
        int high = nibble(rest[0]), low = high < 0 ? -1 : nibble(rest[1]);
        if (low < 0 || loaded == expected) {
            fail(low < 0 ? "not hexadecimal: load the sample again" : "more bytes than db load announced");
            forget();
            return;
        }
        uint16_t byte = (uint16_t)(high << 4 | low);
        if (loaded % 2)
            sample[loaded / 2] = (int16_t)((uint16_t)sample[loaded / 2] | byte << 8);
        else
            sample[loaded / 2] = (int16_t)byte;
        ++loaded;
    }
    if (expected && loaded == expected) {
        expected = loaded = 0;
        has_sample = true;
        line("m-load-done");
    }
}

static void db(const char *rest) {
    if (strncmp(rest, "load ", 5) == 0)
        load(rest + 5);
    else
        data(rest);
}

static void phase(const char *rest) {
    for (size_t k = 0; k < sizeof RUNS / sizeof *RUNS; ++k)
        if (strcmp(rest, RUNS[k]) == 0) {
            runs = (enum runs)k;
            fact("phase", RUNS[k]);
            return;
        }
    fail("a phase is both, preprocessing or inference");
}

static void run_once(void) {
    if (runs != ONLY_INFERENCE) {
        board_pin(PREPROCESSING, true);
        mfe(sample, features);
        board_pin(PREPROCESSING, false);
    }
    if (runs != ONLY_PREPROCESSING) {
        board_pin(INFERENCE, true);
        network_run(features, scores);
        board_pin(INFERENCE, false);
    }
}

/* Both time stamps are printed after the loop, so that nothing is sent while it runs. */
static void infer(const char *rest) {
    const char *at = rest;
    int64_t times = read_number(&at, UINT32_MAX), warmups = INFER_WARMUPS;
    if (*at == ' ') {
        ++at;
        warmups = read_number(&at, UINT32_MAX);
    }
    if (times < 1 || warmups < 0 || *at) return fail("infer takes a count from 1 on, and a count of warm-ups");
    if (runs != ONLY_INFERENCE && !has_sample) return fail("no sample: load one first");
    if (runs == ONLY_INFERENCE && !has_features) return fail("no features: run phase preprocessing first");
    memset(scores, 0, sizeof scores);
    text("m-warmup-start-");
    number(warmups);
    line("");
    for (int64_t k = 0; k < warmups; ++k) run_once();
    line("m-warmup-done");
    text("m-infer-start-");
    number(times);
    line("");
    board_drain();
    uint32_t on_us = board_time_us();
    for (int64_t k = 0; k < times; ++k) run_once();
    uint32_t off_us = board_time_us();
    has_features = true;
    lap(on_us);
    lap(off_us);
    line("m-infer-done");
    results("");
}

static void say_features(const char *rest) {
    (void)rest;
    if (!has_features) return fail("no features: run phase preprocessing first");
    text("m-features-[");
    for (size_t k = 0; k < MFE_FEATURES; ++k) {
        uint8_t byte = (uint8_t)features[k];
        board_send("0123456789abcdef"[byte >> 4]);
        board_send("0123456789abcdef"[byte & 15]);
    }
    line("]");
}

static const struct {
    const char *name;
    void (*run)(const char *rest);
} COMMANDS[] = {
    {"about", about}, {"name", name},   {"profile", profile}, {"timestamp", timestamp},    {"results", results},
    {"db", db},       {"phase", phase}, {"infer", infer},     {"features", say_features},
};

static void answer(void) {
    char *rest = strchr(command, ' ');
    size_t size = rest ? (size_t)(rest - command) : strlen(command);
    for (size_t k = 0; k < sizeof COMMANDS / sizeof *COMMANDS; ++k)
        if (strlen(COMMANDS[k].name) == size && strncmp(command, COMMANDS[k].name, size) == 0)
            return COMMANDS[k].run(rest ? rest + 1 : "");
    fail("no such command");
}

void protocol_start(void) {
    line("m-timestamp-mode-performance");
    line("m-init-done");
    line("m-ready");
}

void protocol_take(char character) {
    if (character == '\r' || character == '\n') return;
    if (character != '%') {
        if (length < COMMAND_MOST - 1)
            command[length++] = character;
        else
            too_long = true;
        return;
    }
    command[length] = 0;
    if (too_long)
        fail("the command is longer than `about` allows");
    else
        answer();
    length = 0;
    too_long = false;
    line("m-ready");
}
