#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "build_info.h"
#include "mfe.h"
#include "network.h"
#include "words.h"

#define SAMPLE_BYTES (2 * MFE_SLICE)
#define INFER_WARMUPS 10 /* of `infer N`, as in the reference firmware */

static const char NO_FEATURES[] = "no features: run phase preprocessing first";

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

static void about(const char *rest) {
    (void)rest;
    say_fact("about-firmware", FIRMWARE_NAME);
    say_fact("about-version", FIRMWARE_VERSION);
    say_fact("about-board", board_name);
    say_fact("about-source", BUILD_SOURCE_SHA256);
    say_fact("about-network", BUILD_NETWORK_SHA256);
    say_fact("about-flags", BUILD_FLAGS);
    say_count("about-memory", SAMPLE_BYTES);
    say_count("about-classes", NETWORK_CLASSES);
    say_count("about-slice", MFE_SLICE);
    say_count("about-rate", MFE_RATE_HZ);
    say_count("about-command", COMMAND_MOST);
}

static void name(const char *rest) {
    (void)rest;
    say_fact("name-dut", board_maker);
}

static void profile(const char *rest) {
    (void)rest;
    say_fact("profile", "ULPMark for tinyML Firmware V0.0.1");
    say_fact("model", "asc");
}

static void timestamp(const char *rest) {
    (void)rest;
    say_lap(board_time_us());
}

static void results(const char *rest) {
    (void)rest;
    say("m-results-[");
    for (size_t k = 0; k < NETWORK_CLASSES; ++k) {
        if (k) board_send(',');
        say_number(scores[k]);
    }
    say_line("]");
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
        say("e-[a sample has ");
        say_number(SAMPLE_BYTES);
        say_line(" bytes: db load takes this number]");
        return;
    }
    forget();
    expected = SAMPLE_BYTES;
    say("m-[Expecting ");
    say_number(expected);
    say_line(" bytes]");
}

static void data(const char *rest) {
    for (; *rest; rest += 2) {
        int high = read_nibble(rest[0]), low = high < 0 ? -1 : read_nibble(rest[1]);
        if (low < 0 || loaded == expected) {
            say_error(low < 0 ? "not hexadecimal: load the sample again" : "more bytes than db load announced");
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
        say_line("m-load-done");
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
            say_fact("phase", RUNS[k]);
            return;
        }
    say_error("a phase is both, preprocessing or inference");
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
    const char *wrong = NULL;
    if (times < 1 || warmups < 0 || *at) wrong = "infer takes a count from 1 on, and a count of warm-ups";
    else if (runs != ONLY_INFERENCE && !has_sample) wrong = "no sample: load one first";
    else if (runs == ONLY_INFERENCE && !has_features) wrong = NO_FEATURES;
    if (wrong) {
        say_error(wrong);
        return;
    }
    memset(scores, 0, sizeof scores);
    say("m-warmup-start-");
    say_number(warmups);
    say_line("");
    for (int64_t k = 0; k < warmups; ++k) run_once();
    say_line("m-warmup-done");
    say("m-infer-start-");
    say_number(times);
    say_line("");
    board_drain();
    uint32_t on_us = board_time_us();
    for (int64_t k = 0; k < times; ++k) run_once();
    uint32_t off_us = board_time_us();
    has_features = true;
    say_lap(on_us);
    say_lap(off_us);
    say_line("m-infer-done");
    results("");
}

static void give_features(const char *rest) {
    (void)rest;
    if (!has_features) {
        say_error(NO_FEATURES);
        return;
    }
    say("m-features-[");
    for (size_t k = 0; k < MFE_FEATURES; ++k) {
        uint8_t byte = (uint8_t)features[k];
        board_send("0123456789abcdef"[byte >> 4]);
        board_send("0123456789abcdef"[byte & 15]);
    }
    say_line("]");
}

static const struct {
    const char *name;
    void (*run)(const char *rest);
} COMMANDS[] = {
    {"about", about}, {"name", name},   {"profile", profile}, {"timestamp", timestamp},    {"results", results},
    {"db", db},       {"phase", phase}, {"infer", infer},     {"features", give_features},
};

static void answer(void) {
    char *rest = strchr(command, ' ');
    size_t size = rest ? (size_t)(rest - command) : strlen(command);
    for (size_t k = 0; k < sizeof COMMANDS / sizeof *COMMANDS; ++k)
        if (strlen(COMMANDS[k].name) == size && strncmp(command, COMMANDS[k].name, size) == 0) {
            COMMANDS[k].run(rest ? rest + 1 : "");
            return;
        }
    say_error("no such command");
}

void protocol_start(void) {
    say_line("m-timestamp-mode-performance");
    say_line("m-init-done");
    say_line("m-ready");
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
        say_error("the command is longer than `about` allows");
    else
        answer();
    length = 0;
    too_long = false;
    say_line("m-ready");
}
