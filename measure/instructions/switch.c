/* Turns callgrind's counting on and off, from inside the process that it watches. */
#include <valgrind/callgrind.h>

void counting_on(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void counting_off(const char *name)
{
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}

void forget(void)
{
    CALLGRIND_ZERO_STATS;
}

void write_counts(const char *name)
{
    CALLGRIND_DUMP_STATS_AT(name);
}
