// Device memory of the emulation and the checks of every access. The device's memory is one reserved range of
// addresses; beside it lies a shadow with two words for every two bytes: the last write and the last read.
// Shared memory is the writable data of this module.
#include "inside.h"

#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

namespace emulated {

void (*on_mistake)(const char *text);

// The kernel, block and thread of the mistake are part of the text.
void mistake(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (here.in_kernel && n > 0 && n < static_cast<int>(sizeof text))
        snprintf(text + n, sizeof text - static_cast<size_t>(n), " (%s, block %u,%u,%u, thread %u,%u,%u)",
                 here.kernel, here.block_at.x, here.block_at.y, here.block_at.z, here.thread_at.x,
                 here.thread_at.y, here.thread_at.z);
    if (on_mistake) {
        bool inside = here.in_kernel;
        here.in_kernel = false;
        on_mistake(text);
        here.in_kernel = inside;
        return;
    }
    fprintf(stderr, "emulated: %s\n", text);
    _exit(EXIT_STATUS);
}

// ---- the shadow ---------------------------------------------------------------------------------

// Who was at a granule of memory. Block 0: nobody but the host or a library, `thread` tells which.
struct mark {
    unsigned block;
    unsigned thread : 10, barriers : 14, warp_syncs : 6, atomic : 1, several : 1;
};
enum { GRANULE = 2, CHUNK = 256, UNWRITTEN = 0, WRITTEN = 1 }; // states: mark.thread where mark.block is 0

struct region {
    uintptr_t first, size;
    mark *writes, *reads; // of every granule
    uint16_t *valid;      // allocated bytes of every chunk; allocations begin at chunks
    bool holds(uintptr_t at) const { return at - first < size; }
    size_t index(uintptr_t at) const { return (at - first) / GRANULE; }
    bool allocated(uintptr_t at, size_t bytes) const {
        return at % CHUNK + bytes <= valid[(at - first) / CHUNK];
    }
};

static bool checks = true;            // options().checks
static region device, pinned, shared; // shared: the writable data of this module
static uintptr_t image_first, image_end;

static void *reserve(size_t bytes) {
    void *p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) return p;
    fprintf(stderr, "emulated: cannot reserve %zu bytes of addresses\n", bytes);
    _exit(EXIT_STATUS);
}

static void shadow_of(region *r) {
    r->writes = static_cast<mark *>(reserve(r->size / GRANULE * sizeof(mark)));
    r->reads = static_cast<mark *>(reserve(r->size / GRANULE * sizeof(mark)));
}

static void make_region(region *r, size_t bytes) {
    r->first = reinterpret_cast<uintptr_t>(reserve(bytes));
    r->size = bytes;
    r->valid = static_cast<uint16_t *>(reserve(bytes / CHUNK * sizeof(uint16_t)));
    shadow_of(r);
}

// The writable segment of the module that holds `here`.
static int find_image(dl_phdr_info *info, size_t, void *) {
    uintptr_t mine = reinterpret_cast<uintptr_t>(&here);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + p.p_vaddr;
        if (p.p_type != PT_LOAD || mine - first >= p.p_memsz) continue;
        shared.first = first & ~uintptr_t(15);
        shared.size = (first + p.p_memsz + 15 - shared.first) & ~uintptr_t(15);
        image_end = first + p.p_memsz;
        for (int k = 0; k < info->dlpi_phnum; k++)
            if (info->dlpi_phdr[k].p_type == PT_LOAD) {
                uintptr_t at = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
                if (!image_first || at < image_first) image_first = at;
            }
        return 1;
    }
    return 0;
}

static void set_up() {
    if (device.size) return;
    make_region(&device, options().memory);
    make_region(&pinned, options().memory / 4);
    dl_iterate_phdr(find_image, nullptr);
    shadow_of(&shared);
    checks = options().checks;
}

// ---- one access ---------------------------------------------------------------------------------

// Writes of the same value by several threads are no mistake: the value is compared when the kernel ends.
struct same_value {
    uintptr_t at;
    uint16_t value;
    place where;
};
static std::vector<same_value> again;

static void write_again(uintptr_t granule) {
    uint16_t value;
    memcpy(&value, reinterpret_cast<void *>(granule), sizeof value);
    again.push_back({granule, value, here});
}

static void race(const char *what, uintptr_t at, const mark &other) {
    mistake("race: %s, %#zx, of thread %u of %s block, without a barrier between them", what,
            static_cast<size_t>(at), other.thread, other.block == here.block ? "the same" : "another");
}

// Whether this access comes after `other` in the order that kernels and barriers make.
static inline bool ordered(const mark &other, bool is_shared) {
    if (other.block < here.first_block) return true;
    if (other.block != here.block) return is_shared; // every block has its own shared memory
    if (other.thread == here.thread && !other.several) return true;
    if (other.barriers != (here.barriers & 0x3fff)) return true;
    return other.thread / WARP == here.thread / WARP && other.warp_syncs != (here.warp_syncs & 63) &&
           !other.several;
}

static inline mark my_mark(bool atomic, bool several) {
    mark m;
    memcpy(&m, &here.mark, sizeof m);
    m.atomic = atomic;
    m.several = several;
    return m;
}

// A thread goes on: what it leaves at places from now on.
void set_mark() {
    mark m;
    m.block = here.block;
    m.thread = here.thread & 1023;
    m.barriers = here.barriers & 0x3fff;
    m.warp_syncs = here.warp_syncs & 63;
    m.atomic = m.several = 0;
    memcpy(&here.mark, &m, sizeof m);
}

// Whether this thread was the last at a place, since the last barrier: it has been checked.
static inline bool is_mine(const mark &m) { return memcmp(&m, &here.mark, sizeof m) == 0; }

static inline bool is_unwritten(const mark &write, bool is_shared) {
    return is_shared ? write.block != here.block : write.block == 0 && write.thread == UNWRITTEN;
}

static inline void check_write(mark *write, mark *read, uintptr_t granule, bool atomic, bool is_shared) {
    if (!ordered(*write, is_shared) && !(atomic && write->atomic)) {
        if (atomic || write->atomic || is_shared)
            race("a write after the write", granule, *write);
        else
            write_again(granule);
    }
    if (!ordered(*read, is_shared)) race("a write after the read", granule, *read);
    *write = my_mark(atomic, false);
    read->block = 0;
}

static inline void check_read(mark *write, mark *read, uintptr_t granule, bool is_shared) {
    if (!ordered(*write, is_shared)) race("a read after the write", granule, *write);
    *read = my_mark(false, !ordered(*read, is_shared));
}

static void check_granules(const region &r, uintptr_t at, size_t bytes, bool write, bool atomic) {
    bool is_shared = &r == &shared;
    if (!is_shared && !r.allocated(at, bytes))
        return mistake("%s of %zu bytes at %#zx, outside of every allocation", write ? "write" : "read",
                       bytes, static_cast<size_t>(at));
    for (size_t k = r.index(at), end = r.index(at + bytes - 1) + 1; k < end; k++) {
        mark *w = &r.writes[k];
        if (!atomic && is_mine(write ? *w : r.reads[k]) && (!write || r.reads[k].block == 0)) continue;
        if ((!write || atomic) && is_unwritten(*w, is_shared))
            return mistake("read of %zu bytes of %s memory at %#zx that nobody wrote", bytes,
                           is_shared ? "shared" : "device", static_cast<size_t>(at));
        if (write)
            check_write(w, &r.reads[k], r.first + k * GRANULE, atomic, is_shared);
        else
            check_read(w, &r.reads[k], r.first + k * GRANULE, is_shared);
    }
}

static inline bool all_equal(const mark *m, size_t count) {
    uint64_t first, other, differ = 0;
    memcpy(&first, m, sizeof first);
    for (size_t k = 1; k < count; k++) {
        memcpy(&other, m + k, sizeof other);
        differ |= first ^ other;
    }
    return differ == 0;
}

// check_granules for most accesses: of all granules the same is known, and nothing is wrong. Returns whether
// that is so; else nothing has changed.
template <size_t bytes>
static inline bool check_alike(const region &r, uintptr_t at, bool write, bool is_shared) {
    const size_t count = bytes < GRANULE ? 1 : bytes / GRANULE;
    mark *w = &r.writes[r.index(at)], *rd = &r.reads[r.index(at)];
    if ((!is_shared && !r.allocated(at, bytes)) || !all_equal(w, count) || !all_equal(rd, count))
        return false;
    if (write) {
        if (is_mine(*w) && rd->block == 0) return true;
        if (!ordered(*w, is_shared) || !ordered(*rd, is_shared)) return false;
        for (size_t k = 0; k < count; k++) {
            memcpy(&w[k], &here.mark, sizeof *w);
            rd[k].block = 0;
        }
        return true;
    }
    if (is_mine(*rd)) return true;
    if (is_unwritten(*w, is_shared) || !ordered(*w, is_shared)) return false;
    const mark now = my_mark(false, !ordered(*rd, is_shared));
    for (size_t k = 0; k < count; k++) rd[k] = now;
    return true;
}

static uintptr_t stacks, stack_bytes;

void stacks_are(const void *first, size_t bytes) {
    stacks = reinterpret_cast<uintptr_t>(first);
    stack_bytes = bytes;
}

static void check(const void *address, size_t bytes, bool write, bool atomic) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (!here.in_kernel) {
        if (device.size && device.holds(at) && checks)
            mistake("the host %s device memory at %p", write ? "writes" : "reads", address);
        return;
    }
    if (at - stacks < stack_bytes || !checks) return;
    if (at % (bytes < 8 ? bytes : 8)) // structs of 16 bytes may be aligned to 8
        return mistake("%zu bytes at %p, which is not aligned for them", bytes, address);
    if (device.holds(at)) return check_granules(device, at, bytes, write, atomic);
    if (shared.holds(at)) return check_granules(shared, at, bytes, write, atomic);
    if (pinned.holds(at)) return check_granules(pinned, at, bytes, write, atomic);
    if (!write && at >= image_first && at < image_end) return; // constants
    if (!write && static_cast<size_t>(at - reinterpret_cast<uintptr_t>(here.arguments)) < here.argument_bytes)
        return;
    mistake("%s of %zu bytes at %p, which is not the device's memory", write ? "write" : "read", bytes,
            address);
}

// An access of the source: most are found right here.
template <size_t bytes> static inline void check_access(const void *address, bool write) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (at - stacks < stack_bytes && here.in_kernel) return;
    if (here.in_kernel && checks && at % (bytes < 8 ? bytes : 8) == 0) {
        if (device.holds(at) && check_alike<bytes>(device, at, write, false)) return;
        if (shared.holds(at) && check_alike<bytes>(shared, at, write, true)) return;
    }
    check(address, bytes, write, false);
}

void apply(void *at, size_t bytes, void *old, const std::function<void(void *)> &change) {
    uint64_t now = 0; // on the stack: what `change` does is not checked
    check(at, bytes, true, true);
    memcpy(old, at, bytes);
    memcpy(&now, at, bytes);
    change(&now);
    memcpy(at, &now, bytes);
}

void kernel_begins() { set_up(); }

void kernel_ends() {
    for (const same_value &s : again)
        if (memcmp(reinterpret_cast<void *>(s.at), &s.value, sizeof s.value) != 0) {
            place now = here;
            here = s.where;
            here.in_kernel = true;
            mistake("race: two threads write different values at %p", reinterpret_cast<void *>(s.at));
            here = now;
            break;
        }
    again.clear();
}

// ---- blocks of memory ---------------------------------------------------------------------------

struct block {
    size_t bytes, room;
    bool pinned;
};
static std::map<uintptr_t, block> blocks, holes[2]; // holes: free room by its first address
static size_t used;

static const region &region_of(uintptr_t at) { return device.holds(at) ? device : pinned; }

// The host or a library has written these bytes.
static void written(uintptr_t at, size_t bytes) {
    const region &r = region_of(at);
    mark m = {};
    m.thread = WRITTEN;
    for (size_t k = r.index(at), end = r.index(at + bytes - 1) + 1; bytes && k < end; k++) r.writes[k] = m;
}

// Zero: unwritten. Whole pages go back to the system.
static void clear(void *first, size_t bytes) {
    const size_t page = 4096;
    char *at = static_cast<char *>(first), *end = at + bytes;
    char *from = at + (page - reinterpret_cast<uintptr_t>(at) % page) % page;
    if (from >= end || static_cast<size_t>(end - from) < 16 * page) {
        memset(at, 0, bytes);
        return;
    }
    size_t whole = static_cast<size_t>(end - from) / page * page;
    memset(at, 0, static_cast<size_t>(from - at));
    (void)madvise(from, whole, MADV_DONTNEED);
    memset(from + whole, 0, static_cast<size_t>(end - from) - whole);
}

static void forget(uintptr_t at, size_t bytes) {
    const region &r = region_of(at);
    size_t first = r.index(at), count = r.index(at + bytes - 1) + 1 - first;
    clear(&r.writes[first], count * sizeof(mark));
    clear(&r.reads[first], count * sizeof(mark));
}

static void set_valid(uintptr_t at, size_t bytes, bool valid) {
    const region &r = region_of(at);
    uint16_t *chunk = &r.valid[(at - r.first) / CHUNK];
    for (size_t done = 0; done < bytes; done += CHUNK)
        *chunk++ = static_cast<uint16_t>(!valid ? 0 : std::min(bytes - done, size_t(CHUNK)));
}

static uintptr_t take_hole(std::map<uintptr_t, block> &list, size_t room) {
    for (auto h = list.begin(); h != list.end(); ++h) {
        if (h->second.room < room) continue;
        uintptr_t at = h->first;
        size_t rest = h->second.room - room;
        list.erase(h);
        if (rest) list[at + room] = {0, rest, false};
        return at;
    }
    return 0;
}

void *memory_take(size_t bytes, bool is_pinned) {
    static bool begun;
    set_up();
    if (!begun)
        for (int i = 0; i < 2; i++)
            holes[i][(i ? pinned : device).first] = {0, (i ? pinned : device).size, false};
    begun = true;
    if (bytes > (is_pinned ? pinned : device).size) return nullptr;
    size_t room = (bytes + 2 * CHUNK - 1) / CHUNK * CHUNK; // at least a chunk between two
    uintptr_t at = take_hole(holes[is_pinned], room);
    if (!at) return nullptr;
    blocks[at] = {bytes, room, is_pinned};
    if (!is_pinned) used += bytes;
    set_valid(at, bytes, true);
    if (is_pinned) written(at, bytes);
    return reinterpret_cast<void *>(at);
}

static void join(std::map<uintptr_t, block> &list, uintptr_t at, size_t room) {
    auto next = list.upper_bound(at);
    if (next != list.end() && next->first == at + room) {
        room += next->second.room;
        next = list.erase(next);
    }
    if (next != list.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second.room == at) {
            before->second.room += room;
            return;
        }
    }
    list[at] = {0, room, false};
}

bool memory_give_back(void *address) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    auto found = blocks.find(at);
    if (found == blocks.end()) return false;
    block b = found->second;
    blocks.erase(found);
    forget(at, b.bytes);
    set_valid(at, b.bytes, false);
    if (!b.pinned) used -= b.bytes;
    join(holes[b.pinned], at, b.room);
    return true;
}

void memory_left(size_t *left, size_t *all) {
    *all = options().memory;
    *left = *all - used;
}

bool memory_is_device(const void *at) { return device.size && device.holds(reinterpret_cast<uintptr_t>(at)); }
bool memory_is_pinned(const void *at) { return pinned.size && pinned.holds(reinterpret_cast<uintptr_t>(at)); }

static bool whole(const void *address, size_t bytes, const char *who, bool read) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (bytes == 0) return true;
    bool inside = device.holds(at) || pinned.holds(at);
    for (uintptr_t p = at; inside && p < at + bytes; p = (p / CHUNK + 1) * CHUNK)
        inside = region_of(p).holds(p) &&
                 region_of(p).allocated(p, at + bytes - p < CHUNK - p % CHUNK ? at + bytes - p
                                                                              : CHUNK - p % CHUNK);
    if (!inside) {
        mistake("%s: %zu bytes at %p are not within an allocation", who, bytes, address);
        return false;
    }
    const region &r = region_of(at);
    for (size_t k = r.index(at), end = r.index(at + bytes - 1) + 1; read && k < end; k++)
        if (r.writes[k].block == 0 && r.writes[k].thread == UNWRITTEN) {
            mistake("%s: nobody wrote byte %zu of %zu at %p", who, (k - r.index(at)) * GRANULE, bytes,
                    address);
            return false;
        }
    return true;
}

void memory_read(const void *at, size_t bytes, const char *who) { (void)whole(at, bytes, who, true); }

void memory_write(const void *at, size_t bytes, const char *who) {
    if (whole(at, bytes, who, false)) written(reinterpret_cast<uintptr_t>(at), bytes);
}

void memory_forget(void *at, size_t bytes, const char *who) {
    if (!whole(at, bytes, who, false) || !bytes) return;
    memset(at, 0xff, bytes);
    forget(reinterpret_cast<uintptr_t>(at), bytes);
}

} // namespace emulated

// ---- what the compiler calls --------------------------------------------------------------------

// A struct: word by word, with the alignment that it has.
static void range(void *at, size_t bytes, bool write) {
    uintptr_t first = reinterpret_cast<uintptr_t>(at);
    for (size_t done = 0; done < bytes;) {
        size_t step = 8;
        while ((first + done) % step || done + step > bytes) step /= 2;
        emulated::check(reinterpret_cast<void *>(first + done), step, write, false);
        done += step;
    }
}

#define ACCESS(bytes)                                                                                        \
    void __tsan_read##bytes(void *at) { emulated::check_access<bytes>(at, false); }                          \
    void __tsan_write##bytes(void *at) { emulated::check_access<bytes>(at, true); }                          \
    void __tsan_volatile_read##bytes(void *at) { emulated::check_access<bytes>(at, false); }                 \
    void __tsan_volatile_write##bytes(void *at) { emulated::check_access<bytes>(at, true); }                 \
    void __tsan_unaligned_read##bytes(void *at) { range(at, bytes, false); }                                 \
    void __tsan_unaligned_write##bytes(void *at) { range(at, bytes, true); }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *at, size_t bytes) { range(at, bytes, false); }
void __tsan_write_range(void *at, size_t bytes) { range(at, bytes, true); }
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    range(const_cast<void *>(from), bytes, false);
    range(to, bytes, true);
    return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    range(to, bytes, true);
    return memset(to, value, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    range(const_cast<void *>(from), bytes, false);
    range(to, bytes, true);
    return memmove(to, from, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
int __tsan_atomic32_fetch_add(volatile int *at, int value, int) { // of shared pointers on the host
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
// Static guards: a byte, on aarch64 eight.
unsigned char __tsan_atomic8_load(const volatile unsigned char *at, int) { return *at; }
uint64_t __tsan_atomic64_load(const volatile uint64_t *at, int) { return *at; }
}
