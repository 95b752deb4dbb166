"""ST X-NUCLEO-LPM01A over its serial line."""
