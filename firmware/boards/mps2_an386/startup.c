/* Vectors and reset of a Cortex-M4F. */
#include <stdint.h>

extern uint32_t data_start, data_end, data_load, bss_start, bss_end, stack_top;
int main(void);

#define CPACR (*(volatile uint32_t *)0xE000ED88)

/* The FPU is switched on before any function that may save its registers. */
__attribute__((noreturn)) void reset(void) {
    CPACR |= 0xFu << 20;
    __asm volatile("dsb\n\tisb");
    for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
    main();
    for (;;) {
    }
}

static void halt(void) {
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const VECTORS[16] = {
    &stack_top,          (const void *)reset, (const void *)halt, (const void *)halt,
    (const void *)halt,  (const void *)halt,  (const void *)halt, 0, 0, 0, 0,
    (const void *)halt,  (const void *)halt,  0, (const void *)halt, (const void *)halt,
};
