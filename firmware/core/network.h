/* The int8 network in whole numbers; the Python twin is drivers/devices/arduino/quantised.py. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

#include "mfe.h"
#include "trained_network.h" /* as exported by training */

void network_run(const int8_t features[MFE_FEATURES], int32_t scores[NETWORK_CLASSES]);

#endif
