/* The int8 network in whole numbers; the Python twin is drivers/devices/arduino/quantised.py. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

#include "trained_network.h" /* exported: NETWORK_* sizes, digest and weights */

void network_run(const int8_t features[], int32_t scores[NETWORK_CLASSES]);

#endif
