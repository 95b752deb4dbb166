/* Mel-filterbank energies of one slice in whole numbers; the Python twin is drivers/devices/arduino/mfe.py. */
#ifndef MFE_H
#define MFE_H

#include <stdint.h>

#include "mfe_tables.h" /* generated: MFE_* parameters and tables */

#define MFE_FEATURES (MFE_FRAMES * MFE_FILTERS)

void mfe(const int16_t slice[MFE_SLICE], int8_t features[MFE_FEATURES]); /* features[frame][filter] */

#endif
