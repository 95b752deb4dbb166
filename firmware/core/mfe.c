#include "mfe.h"

void mfe(const int16_t slice[MFE_SLICE], int8_t features[MFE_FEATURES]) {
    for (int k = 0; k < MFE_FEATURES; ++k) features[k] = (int8_t)(slice[k] >> 8);
}
