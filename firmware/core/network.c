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

/* One output channel at one place: `row` is what the kernel spans in one row of the image. */
static int32_t sum_at(const int8_t *at, size_t stride, const int8_t *weights, size_t row) {
    int32_t sum = 0;
    for (size_t y = 0; y < KERNEL; ++y, at += stride, weights += row)
        for (size_t k = 0; k < row; ++k) sum += at[k] * weights[k];
    return sum;
}

/* Maximum of four places, then the rectified rescaling: it is monotonic, so that it commutes with the maximum. */
static void convolve(const struct convolution *layer, const int8_t *image, size_t height, size_t width, int8_t *to) {
    size_t row = KERNEL * layer->inputs, stride = width * layer->inputs;
    for (size_t y = 0; y < POOLED(height); ++y)
        for (size_t x = 0; x < POOLED(width); ++x)
            for (size_t k = 0; k < layer->outputs; ++k) {
                const int8_t *at = image + 2 * y * stride + 2 * x * layer->inputs;
                const int8_t *weights = layer->weights + k * KERNEL * row;
                int32_t most = INT32_MIN;
                for (size_t place = 0; place < 4; ++place) {
                    const int8_t *corner = at + (place / 2) * stride + (place % 2) * layer->inputs;
                    int32_t sum = sum_at(corner, stride, weights, row);
                    if (sum > most) most = sum;
                }
                int64_t scaled = (int64_t)(most + layer->bias[k]) * layer->multiplier[k];
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
