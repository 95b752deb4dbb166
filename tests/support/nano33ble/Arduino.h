/* As much of the Arduino API as the sketch uses: the serial line is standard input and output, pins go to standard error. */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <poll.h>
#include <unistd.h>

typedef uint8_t pin_size_t;
enum { LOW, HIGH, OUTPUT };

struct StubSerial {
    void begin(unsigned long) {}
    explicit operator bool() const { return true; }
    void write(char character) { std::putchar(character); }
    void flush() { std::fflush(stdout); }
    bool available() {
        flush();
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
static inline void digitalWrite(pin_size_t pin, int level) { std::fprintf(stderr, "%d%c", pin, level ? '+' : '-'); }
