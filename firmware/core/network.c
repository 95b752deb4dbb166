/* Two convolutions of 3 x 3 without padding, each with maximum pooling of 2 x 2, then a dense layer.
   Batch normalisation is folded into weights, biases and multipliers. Plain C: no kernel library is used. */
#include "network.h"

#include <stddef.h>

#define KERNEL 3
#define POOLED(size) (((size) - KERNEL + 1) / 2)
#define HEIGHT_1 POOLED(MFE_FRAMES)
#define WIDTH_1 POOLED(MFE_FILTERS)
#define HEIGHT_2 POOLED(HEIGHT_1)
#define WIDTH_2 POOLED(WIDTH_1)
#define FLAT (HEIGHT_2 * WIDTH_2 * NETWORK_CHANNELS_2)

_Static_assert(sizeof NETWORK_DENSE_WEIGHTS == FLAT * NETWORK_CLASSES, "the network is for features of another shape");

static int8_t pooled_1[HEIGHT_1 * WIDTH_1 * NETWORK_CHANNELS_1], pooled_2[FLAT];

/* A layer's constants; weights[output channel][row][column][input channel]. */
struct convolution {
    size_t inputs, outputs;
    const int8_t *weights;
    const int32_t *bias, *multiplier;
    const uint8_t *shift;
};

/* The largest of one output channel's sums at four places, which pooling makes one: each weight is loaded once. */
static int32_t largest_sum(const int8_t *at, const int8_t *weights, size_t inputs, size_t stride) {
    int32_t sums[4] = {0, 0, 0, 0};
    for (size_t y = 0; y < KERNEL; ++y, at += stride)
        for (size_t k = 0; k < KERNEL * inputs; ++k) {
            int32_t weight = *weights++;
            sums[0] += weight * at[k];
            sums[1] += weight * at[k + inputs];
            sums[2] += weight * at[k + stride];
            sums[3] += weight * at[k + stride + inputs];
        }
    int32_t most = sums[0];
    for (size_t place = 1; place < 4; ++place)
        if (sums[place] > most) most = sums[place];
    return most;
}

/* Rescaling and rectification are monotonic, so that they may follow the maximum. */
static void convolve(const struct convolution *layer, const int8_t *image, size_t height, size_t width, int8_t *to) {
    size_t inputs = layer->inputs, stride = width * inputs;
    for (size_t y = 0; y < POOLED(height); ++y)
        for (size_t x = 0; x < POOLED(width); ++x)
            for (size_t k = 0; k < layer->outputs; ++k) {
                const int8_t *weights = layer->weights + k * KERNEL * KERNEL * inputs;
                int32_t sum = largest_sum(image + 2 * y * stride + 2 * x * inputs, weights, inputs, stride);
                int64_t scaled = (int64_t)(sum + layer->bias[k]) * layer->multiplier[k];
                scaled = (scaled + (INT64_C(1) << (layer->shift[k] - 1))) >> layer->shift[k];
                *to++ = (int8_t)(scaled < 0 ? 0 : scaled > 127 ? 127 : scaled);
            }
}

void network_run(const int8_t features[MFE_FEATURES], int32_t scores[NETWORK_CLASSES]) {
    static const struct convolution first = {
        1, NETWORK_CHANNELS_1, NETWORK_FIRST_WEIGHTS, NETWORK_FIRST_BIAS, NETWORK_FIRST_MULTIPLIER, NETWORK_FIRST_SHIFT};
    static const struct convolution second = {NETWORK_CHANNELS_1,     NETWORK_CHANNELS_2,        NETWORK_SECOND_WEIGHTS,
                                              NETWORK_SECOND_BIAS,    NETWORK_SECOND_MULTIPLIER, NETWORK_SECOND_SHIFT};
    convolve(&first, features, MFE_FRAMES, MFE_FILTERS, pooled_1);
    convolve(&second, pooled_1, HEIGHT_1, WIDTH_1, pooled_2);
    for (size_t k = 0; k < NETWORK_CLASSES; ++k) {
        int32_t sum = NETWORK_DENSE_BIAS[k];
        for (size_t at = 0; at < FLAT; ++at) sum += pooled_2[at] * NETWORK_DENSE_WEIGHTS[k * FLAT + at];
        scores[k] = sum;
    }
}
