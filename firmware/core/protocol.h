/* The commands of the MLPerf Tiny device protocol, with phases; see docs/reference/firmware.md. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#define FIRMWARE_NAME "neurorig-mcu"
#define FIRMWARE_VERSION "1.0"
#define COMMAND_MOST 1100 /* characters of a command, its `%` included */

void protocol_start(void);             /* says that the board has started */
void protocol_take(char character);    /* takes one character, and answers at the end of a command */

#endif
