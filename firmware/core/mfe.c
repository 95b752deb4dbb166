/* A right shift of a negative number rounds down, as every compiler for this core has it. */
#include "mfe.h"

#include <stddef.h>

#define BINS (MFE_POINTS / 2 + 1)

static int32_t real[MFE_POINTS], imaginary[MFE_POINTS];

static size_t reversed(size_t index) {
    size_t found = 0;
    for (size_t bit = 1; bit < MFE_POINTS; bit <<= 1, index >>= 1) found = found << 1 | (index & 1);
    return found;
}

/* The frame's samples with pre-emphasis, times 50, in the order that the transform takes. */
static void take(const int16_t slice[MFE_SLICE], size_t frame, int32_t to[MFE_POINTS]) {
    const int16_t *at = slice + frame * MFE_STRIDE;
    int32_t before = frame ? at[-1] : 0;
    for (size_t k = 0; k < MFE_POINTS; ++k) {
        to[reversed(k)] = 50 * at[k] - MFE_EMPHASIS_OVER_50 * before;
        before = at[k];
    }
}

static int32_t turned(int64_t product) {
    return (int32_t)((product + (INT64_C(1) << (MFE_TURN_BITS - 1))) >> MFE_TURN_BITS);
}

/* Complex transform in place: radix 2, decimated in time. */
static void transform(void) {
    for (size_t half = 1; half < MFE_POINTS; half *= 2)
        for (size_t k = 0; k < half; ++k) {
            int64_t cosine = MFE_COSINE[k * (MFE_POINTS / 2 / half)], sine = MFE_SINE[k * (MFE_POINTS / 2 / half)];
            for (size_t a = k; a < MFE_POINTS; a += 2 * half) {
                size_t b = a + half;
                int32_t x = turned(cosine * real[b] - sine * imaginary[b]);
                int32_t y = turned(cosine * imaginary[b] + sine * real[b]);
                real[b] = real[a] - x;
                imaginary[b] = imaginary[a] - y;
                real[a] += x;
                imaginary[a] += y;
            }
        }
}

/* The logarithm to base 2, interpolated in a table. */
static int32_t log2_of(int64_t value) {
    if (value < 1) value = 1;
    int place = 0;
    for (int bit = 32; bit; bit /= 2)
        if (value >> place >= INT64_C(1) << bit) place += bit;
    int32_t fraction = (int32_t)(place >= MFE_LOG_BITS ? value >> (place - MFE_LOG_BITS) : value << (MFE_LOG_BITS - place));
    fraction -= INT32_C(1) << MFE_LOG_BITS;
    int low_bits = MFE_LOG_BITS - MFE_LOG_STEPS_BITS;
    const int32_t *step = MFE_LOG2 + (fraction >> low_bits);
    int32_t rest = fraction & ((1 << low_bits) - 1);
    return place * (1 << MFE_LOG_BITS) + step[0] + (((step[1] - step[0]) * rest + (1 << (low_bits - 1))) >> low_bits);
}

static void filter(const int64_t power[BINS], int8_t to[MFE_FILTERS]) {
    const uint16_t *weight = MFE_WEIGHTS;
    for (size_t k = 0; k < MFE_FILTERS; ++k) {
        int64_t sum = 0;
        for (size_t bin = MFE_FIRST_BIN[k]; bin < MFE_END_BIN[k]; ++bin) sum += power[bin] * *weight++;
        int64_t code = ((int64_t)log2_of(sum) * MFE_CODE_PER_LOG2 + MFE_CODE_OFFSET) >> MFE_CODE_BITS;
        to[k] = (int8_t)((code < 0 ? 0 : code > 255 ? 255 : code) - 128);
    }
}

static int64_t square(int32_t x, int32_t y) { return (int64_t)x * x + (int64_t)y * y; }

/* Two frames go through one complex transform, as real and imaginary part; an odd last frame goes with silence. */
void mfe(const int16_t slice[MFE_SLICE], int8_t features[MFE_FEATURES]) {
    static int64_t first[BINS], second[BINS];
    for (size_t frame = 0; frame < MFE_FRAMES; frame += 2) {
        take(slice, frame, real);
        if (frame + 1 < MFE_FRAMES)
            take(slice, frame + 1, imaginary);
        else
            for (size_t k = 0; k < MFE_POINTS; ++k) imaginary[k] = 0;
        transform();
        for (size_t k = 0; k < BINS; ++k) {
            size_t mirror = (MFE_POINTS - k) % MFE_POINTS;
            first[k] = square(real[k] + real[mirror], imaginary[k] - imaginary[mirror]) >> MFE_POWER_SHIFT;
            second[k] = square(imaginary[k] + imaginary[mirror], real[mirror] - real[k]) >> MFE_POWER_SHIFT;
        }
        filter(first, features + frame * MFE_FILTERS);
        if (frame + 1 < MFE_FRAMES) filter(second, features + (frame + 1) * MFE_FILTERS);
    }
}
