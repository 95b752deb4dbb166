/* As much of the Arduino API as the sketch uses: the serial line is standard input and output, pins go to standard error. */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <poll.h>
#include <unistd.h>

typedef uint8_t pin_size_t;
enum { LOW, HIGH, OUTPUT };

struct StubSerial {
    bool waits = false;
    void begin(unsigned long) {}
    explicit operator bool() const { return true; }
    void write(char character) { std::putchar(character), waits = true; }
    void flush() {} /* empty in the mbed core, too: what was written leaves with the next frames of USB */
    void pass_frame() { std::fflush(stdout), waits = false; }
    bool available() {
        pass_frame();
        pollfd line = {0, POLLIN, 0};
        return poll(&line, 1, -1) > 0;
    }
    int read() {
        char character;
        if (::read(0, &character, 1) != 1) _exit(0);
        return character;
    }
};
static StubSerial Serial;

static inline unsigned long micros() {
    using namespace std::chrono;
    return (unsigned long)(uint32_t)duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}
static inline void pinMode(pin_size_t, int) {}
static inline void delay(unsigned long ms) {
    if (ms > 1) Serial.pass_frame();
}
/* A pin that moves while characters wait for the line is marked. */
static inline void digitalWrite(pin_size_t pin, int level) {
    std::fprintf(stderr, "%s%d%c", Serial.waits ? "!" : "", pin, level ? '+' : '-');
}
