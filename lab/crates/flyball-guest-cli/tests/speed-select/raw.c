/*
 * What the drivers answer when they are asked directly: the state that Speed Select commands change, call by call.
 * Beside flyball and the unmodified tool a third reader, which shares nothing with either; built by the test, run in the
 * guest. Numbers and offsets: include/uapi/linux/isst_if.h.
 *
 * raw msr NUMBER prints a register of CPU 0 instead, raw msr NUMBER VALUE writes it. One line a fact. A call that is refused prints its errno. A core mask above the highest level and an association in a
 * power domain without registers are never asked for: some kernels fault at them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RW 3u
#define R 2u
#define W 1u

static int node;

static int call(unsigned nr, unsigned direction, void *data)
{
    unsigned long request = (unsigned long)direction << 30 | 8ul << 16 | 0xfeul << 8 | nr;
    return ioctl(node, request, data) < 0 ? errno : 0;
}

static void put16(uint8_t *at, unsigned value)
{
    at[0] = value & 0xff;
    at[1] = value >> 8;
}

static void put32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, 4);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static int mailbox(unsigned cpu, unsigned command, unsigned sub, unsigned parameter, uint32_t data, uint32_t *answer)
{
    uint8_t words[28] = {1};
    put32(words + 4, cpu);
    put32(words + 8, parameter);
    put32(words + 12, data);
    put16(words + 20, command);
    put16(words + 22, sub);
    int error = call(3, RW, words);
    *answer = get32(words + 16);
    return error;
}

static void say_mailbox(const char *what, unsigned cpu, unsigned command, unsigned sub, unsigned parameter, uint32_t data)
{
    uint32_t answer;
    int error = mailbox(cpu, command, sub, parameter, data, &answer);
    if (error)
        printf("%s %u: errno %d\n", what, command == 0xd0 ? parameter : data, error);
    else
        printf("%s %u: %08x\n", what, command == 0xd0 ? parameter : data, answer);
}

static void say_register(const char *what, unsigned number, unsigned offset)
{
    uint8_t words[20] = {1};
    put32(words + 12, offset);
    int error = call(2, W, words);
    if (error)
        printf("%s %u: errno %d\n", what, number, error);
    else
        printf("%s %u: %08x\n", what, number, get32(words + 16));
}

static void turbo_limits(unsigned cpu)
{
    uint8_t words[32] = {1};
    put32(words + 12, cpu);
    put32(words + 16, 0x1ad);
    int error = call(4, RW, words);
    if (error)
        printf("trl of cpu %u: errno %d\n", cpu, error);
    else
        printf("trl of cpu %u: %08x%08x\n", cpu, get32(words + 28), get32(words + 24));
}

static void through_mailbox(unsigned cpus, int has_registers)
{
    uint32_t levels = 0;
    say_mailbox("levels", 0, 0x7f, 0, 0, 0);
    mailbox(0, 0x7f, 0, 0, 0, &levels);
    for (unsigned level = 0; level <= (levels >> 8 & 0xff); level++)
        say_mailbox("control of level", 0, 0x7f, 1, 0, level);
    say_mailbox("pm-config", 0, 0x94, 3, 0, 0);
    say_mailbox("qos", 0, 0xd0, 2, 0, 0);
    for (unsigned class = 0; class < 4; class++) {
        if (has_registers)
            say_register("class", class, 8 + 4 * class);
        else
            say_mailbox("class", 0, 0xd0, 1, class, 0);
    }
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        uint8_t map[12] = {1};
        put32(map + 4, cpu);
        if (call(1, RW, map))
            continue;
        unsigned core = get32(map + 8) >> 1 & 0xff;
        if (has_registers)
            say_register("class of core", core, 0x20 + 4 * core);
        else
            say_mailbox("class of core", 0, 0xd0, 0, core, 0);
    }
}

static void through_domains(void)
{
    for (unsigned package = 0; package < 8; package++) {
        uint8_t count[4] = {package};
        if (call(5, R, count))
            continue;
        unsigned valid = count[2] | count[3] << 8;
        printf("package %u: %u domains, valid %04x\n", package, count[1], valid);
        for (unsigned domain = 0; domain < 16; domain++) {
            if (!(valid >> domain & 1))
                continue;
            uint8_t power[6] = {0, package, domain};
            int error = call(6, RW, power);
            printf("%u.%u core-power: errno %d enable %u supported %u type %u\n", package, domain, error, power[3],
                   power[4], power[5]);
            for (unsigned class = 0; class < 4; class++) {
                uint8_t clos[10] = {0, package, domain, class};
                error = call(7, RW, clos);
                printf("%u.%u class %u: errno %d min %u max %u priority %u\n", package, domain, class, error,
                       clos[4] | clos[5] << 8, clos[6] | clos[7] << 8, clos[8]);
            }
            printf("%u.%u classes of cores:", package, domain);
            for (unsigned core = 0; core < 64; core++) {
                uint8_t assoc[12] = {1, 0, 0, 0, 1, 0, package, domain};
                put16(assoc + 8, core);
                error = call(8, RW, assoc);
                if (error)
                    printf(" e%d", error);
                else
                    printf(" %u", assoc[10]);
            }
            uint8_t levels[11] = {package, domain};
            error = call(9, RW, levels);
            printf("\n%u.%u levels: errno %d highest %u current %u state %u locked %u\n", package, domain, error,
                   levels[2], levels[5], levels[6], levels[7]);
        }
    }
}

/* A register of CPU 0, through the msr driver. */
static int msr(const char *number)
{
    uint64_t value;
    int file = open("/dev/cpu/0/msr", O_RDONLY);
    if (file < 0 || pread(file, &value, 8, strtoul(number, NULL, 0)) != 8) {
        perror("/dev/cpu/0/msr");
        return 1;
    }
    printf("%016llx\n", (unsigned long long)value);
    return 0;
}

/* The same, written. */
static int put_msr(const char *number, const char *content)
{
    uint64_t value = strtoull(content, NULL, 0);
    int file = open("/dev/cpu/0/msr", O_WRONLY);
    if (file < 0 || pwrite(file, &value, 8, strtoul(number, NULL, 0)) != 8) {
        perror("/dev/cpu/0/msr");
        return 1;
    }
    return 0;
}

int main(int count, char **words)
{
    uint8_t platform[8] = {0};
    if (count == 4 && !strcmp(words[1], "msr"))
        return put_msr(words[2], words[3]);
    if (count == 3 && !strcmp(words[1], "msr"))
        return msr(words[2]);
    unsigned cpus = sysconf(_SC_NPROCESSORS_CONF);
    node = open("/dev/isst_interface", O_RDWR);
    if (node < 0 || call(0, R, platform)) {
        perror("isst_interface");
        return 1;
    }
    printf("api %u\n", platform[0]);
    if (platform[0] > 1)
        through_domains();
    else
        through_mailbox(cpus, platform[7]);
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        turbo_limits(cpu);
    return 0;
}
