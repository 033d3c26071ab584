/*
 * A guest that means no good: random values to random registers of every CPU, and to the PCI functions that the plug-in
 * serves, as fast as it can. Built by the test, run in the guest as root.
 *
 *   hostile SEED COUNT ours    registers of the silicon's; the guest itself is to live on
 *   hostile SEED COUNT any     all registers; the guest may well die of it
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Registers without which a kernel does not live: time stamps, APIC, system calls, memory types, paging, segments. */
static int vital(uint32_t reg)
{
    return reg == 0x10 || reg == 0x1b || reg == 0x3a || reg == 0x3b || (reg >= 0x174 && reg <= 0x176) || reg == 0x1d9 ||
           (reg >= 0x200 && reg <= 0x2ff) || reg == 0x6e0 || (reg >= 0x680 && reg < 0x800 && reg > 0x6bf && reg < 0x770) ||
           (reg >= 0x800 && reg <= 0x8ff) || (reg >= 0xc0000080 && reg <= 0xc0000084) ||
           (reg >= 0xc0000100 && reg <= 0xc0000103) || (reg >= 0xc0010010 && reg <= 0xc001001f) || reg == 0xc0010117 ||
           reg == 0x345 || reg == 0xda0;
}

static uint32_t some_register(int any)
{
    static const uint32_t known[] = { 0x199, 0x19a, 0x19b, 0x1a0, 0x1ad, 0x1ae, 0x1b0, 0x1b1, 0x1b2, 0x1fc, 0x610, 0x620,
        0x64b, 0x770, 0x772, 0x773, 0x774, 0x777, 0x17d0, 0x17d1, 0xb0, 0xb1, 0xe7, 0xe8, 0xc00102b1, 0xc00102b3,
        0xc0010062, 0xc0010015 };
    for (;;) {
        uint32_t reg;
        switch (next() % 4) {
        case 0: reg = next() % 0x2000; break;
        case 1: reg = 0xc0010000 + next() % 0x400; break;
        default: reg = known[next() % (sizeof known / sizeof *known)]; break;
        }
        if (any && next() % 4 == 0)
            reg = (uint32_t)next();
        if (any || !vital(reg))
            return reg;
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
    long count = atol(argv[2]), taken = 0, refused = 0, memory = 0, config = 0;
    int any = !strcmp(argv[3], "any"), cpus = 0, fd[64];
    char path[512];
    for (int cpu = 0; cpu < 64; cpu++) {
        snprintf(path, sizeof path, "/dev/cpu/%d/msr", cpu);
        int opened = open(path, O_RDWR);
        if (opened >= 0)
            fd[cpus++] = opened;
    }
    for (long i = 0; cpus && i < count; i++) {
        uint64_t value = next() % 3 ? next() : 1ull << next() % 64;
        uint32_t reg = some_register(any);
        int to = fd[next() % cpus];
        if (next() % 4 == 0)
            pread(to, &value, 8, reg);
        else if (pwrite(to, &value, 8, reg) == 8)
            taken++;
        else
            refused++;
    }
    DIR *devices = opendir("/sys/bus/pci/devices");
    for (struct dirent *entry; devices && (entry = readdir(devices));) {
        unsigned vendor = 0, device = 0;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/config", entry->d_name);
        int space = open(path, O_RDWR);
        if (space < 0)
            continue;
        pread(space, &vendor, 2, 0);
        pread(space, &device, 2, 2);
        if (vendor != 0x8086 || (device != 0x09a7 && device != 0x3459 && device != 0x3451 && device != 0x3259 && device != 0x3251)) {
            close(space);
            continue;
        }
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/enable", entry->d_name);
        int enable = open(path, O_WRONLY);
        if (enable >= 0) {
            write(enable, "1", 1);
            close(enable);
        }
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/resource0", entry->d_name);
        int resource = open(path, O_RDWR | O_SYNC);
        struct stat size;
        if (resource >= 0 && !fstat(resource, &size) && size.st_size > 8) {
            volatile uint8_t *bar = mmap(NULL, size.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, resource, 0);
            for (long i = 0; bar != MAP_FAILED && i < count; i++, memory++) {
                volatile uint8_t *at = bar + next() % (size.st_size - 8);
                if (next() % 8) /* most where something is */
                    at = bar + next() % (size.st_size < 0x4000 ? size.st_size - 8 : 0x4000);
                uint64_t value = next() % 2 ? next() : next() % 16 << next() % 48;
                switch (next() % 6) {
                case 0: *at = value; break;
                case 1: *(volatile uint16_t *)at = value; break;
                case 2: *(volatile uint32_t *)((uintptr_t)at & ~3ul) = value; break;
                case 3: *(volatile uint64_t *)((uintptr_t)at & ~7ul) = value; break;
                case 4: value = *(volatile uint32_t *)((uintptr_t)at & ~3ul); break;
                default: value = *(volatile uint64_t *)((uintptr_t)at & ~7ul); break;
                }
            }
        }
        for (long i = 0; i < count / 8; i++, config++) {
            uint32_t value = next();
            int length = 1 << next() % 3;
            /* Not the base addresses and the command word, as long as the guest is to live. */
            long at = any ? (long)(next() % 4096) : 0x40 + (long)(next() % 4000);
            if (next() % 2)
                pwrite(space, &value, length, at);
            else
                pread(space, &value, length, at);
        }
        close(space);
    }
    printf("%d CPUs, %ld writes taken, %ld refused, %ld accesses of memory, %ld of configuration\n", cpus, taken, refused,
        memory, config);
    return 0;
}
