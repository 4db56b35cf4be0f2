/*
 * Reads device code as far as the simulator needs it: names of kernels, where their parameters lie, global variables.
 *
 * PTX is searched for `.entry` and `.global`. A cubin is an ELF file. Kernels are the function symbols marked as
 * entries (st_other & 0x10). Their parameters stand in `.nv.info.NAME` as records (format 4, attribute 0x17). A record
 * is index, ordinal, offset, size << 18; 0x2f is the register count. Fat binaries are lists of both; their members may
 * be compressed (LZ4, which is undone here, or zstd, by the system's libzstd where it is there). As on a card the
 * member that fits it best counts, for programs leave kernels out of what is for older cards. Of those that do not fit,
 * which a card refuses, the first whose kernels can be read counts.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "libhook/sim/driver/module.h"

static struct kernel_facts *add_kernel(struct image *image, const char *name, size_t length) {
    struct kernel_facts *grown = realloc(image->kernel, (image->kernels + 1) * sizeof(*grown));
    if (!grown)
        return NULL;
    image->kernel = grown;
    struct kernel_facts *facts = &grown[image->kernels];
    memset(facts, 0, sizeof(*facts));
    facts->name = strndup(name, length);
    facts->registers = 32;
    facts->max_threads = 1024;
    image->kernels++;
    return facts;
}

static void add_global(struct image *image, const char *name, size_t length, size_t bytes) {
    struct symbol *grown = realloc(image->global, (image->globals + 1) * sizeof(*grown));
    if (!grown)
        return;
    image->global = grown;
    image->global[image->globals++] = (struct symbol){.name = strndup(name, length), .bytes = bytes};
}

/* ---- PTX ---- */

static size_t type_bytes(const char *type) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{".u64", 8}, {".s64", 8}, {".b64", 8}, {".f64", 8}, {".u32", 4}, {".s32", 4}, {".b32", 4}, {".f32", 4},
        {".u16", 2}, {".s16", 2}, {".b16", 2}, {".f16", 2}, {".u8", 1}, {".s8", 1}, {".b8", 1}, {".b128", 16}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t length = strlen(types[i].name);
        if (strncmp(type, types[i].name, length) == 0 && !isalnum((unsigned char)type[length]))
            return types[i].bytes;
    }
    return 0;
}

static const char *skip_space(const char *at) {
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (at[0] == '/' && at[1] == '/')
            at += strcspn(at, "\n");
        else
            return at;
    }
}

static size_t word(const char *at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || strchr("_$%.", at[length] ? at[length] : ' '))
        length++;
    return length;
}

/* One declaration like `.align 8 .b8 name[24]`: where its name is, its size and alignment. */
static const char *declaration(const char *at, const char *end, size_t *length, size_t *bytes, size_t *align) {
    const char *name = NULL;
    *bytes = *align = *length = 0;
    while ((at = skip_space(at)) < end) {
        size_t n = word(at);
        if (!n)
            break;
        if (strncmp(at, ".align", 6) == 0) {
            at = skip_space(at + 6);
            *align = strtoul(at, (char **)&at, 10);
        } else if (*at == '.') {
            size_t scale = strncmp(at, ".v2", 3) == 0 ? 2 : strncmp(at, ".v4", 3) == 0 ? 4 : 1;
            *bytes = type_bytes(at) ? type_bytes(at) * (*bytes ? *bytes : 1) : scale > 1 ? scale : *bytes;
            at += n;
        } else {
            name = at;
            *length = n;
            at += n;
            break;
        }
    }
    for (at = skip_space(at); name && at < end && *at == '['; at = skip_space(at)) {
        size_t count = strtoul(at + 1, (char **)&at, 10);
        *bytes *= count ? count : 1;
        at += *at == ']';
    }
    if (!*align)
        *align = *bytes && *bytes <= 16 ? *bytes : 1;
    return name;
}

static void ptx_parameters(struct kernel_facts *facts, const char *at, const char *end) {
    uint32_t offset = 0;
    while (at < end && facts->parameters < 64) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *last = comma ? comma : end;
        size_t length, bytes, align;
        const char *param = strstr(at, ".param");
        if (param && param < last && declaration(param + 6, last, &length, &bytes, &align) && bytes) {
            offset = (offset + (uint32_t)align - 1) / (uint32_t)align * (uint32_t)align;
            facts->parameter[facts->parameters].offset = offset;
            facts->parameter[facts->parameters++].bytes = (uint32_t)bytes;
            offset += (uint32_t)bytes;
        }
        at = last + 1;
    }
}

static CUresult read_ptx(struct image *image, const char *text) {
    NEED(strstr(text, ".version"), CUDA_ERROR_INVALID_PTX);
    for (const char *at = text; (at = strstr(at, ".entry")) != NULL;) {
        at = skip_space(at + 6);
        size_t length = word(at);
        struct kernel_facts *facts = add_kernel(image, at, length);
        NEED(facts, CUDA_ERROR_OUT_OF_MEMORY);
        at = skip_space(at + length);
        if (*at == '(') {
            const char *close = strchr(at, ')');
            NEED(close, CUDA_ERROR_INVALID_PTX);
            ptx_parameters(facts, at + 1, close);
            at = close;
        }
    }
    int depth = 0; /* variables inside of functions are no symbols */
    for (const char *at = text; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        bool global = strncmp(at, ".global", 7) == 0, constant = strncmp(at, ".const", 6) == 0;
        if (depth || !(global || constant) || isalnum((unsigned char)at[global ? 7 : 6]))
            continue;
        const char *end = at + strcspn(at, ";=");
        size_t length, bytes, align;
        const char *name = declaration(at + (global ? 7 : 6), end, &length, &bytes, &align);
        if (name && bytes)
            add_global(image, name, length, bytes);
    }
    return CUDA_SUCCESS;
}

/* ---- cubin ---- */

static void read_info(struct kernel_facts *facts, const uint8_t *at, const uint8_t *end) {
    while (at + 4 <= end) {
        uint8_t format = at[0], attribute = at[1];
        uint16_t bytes = (uint16_t)(at[2] | at[3] << 8);
        const uint8_t *value = at + 4;
        at += 4 + (format == 4 ? bytes : 0);
        if (at > end)
            return;
        if (format == 4 && attribute == 0x17 && bytes >= 12) {
            uint16_t ordinal = (uint16_t)(value[4] | value[5] << 8), offset = (uint16_t)(value[6] | value[7] << 8);
            uint32_t flags;
            memcpy(&flags, value + 8, 4);
            if (ordinal < 64) {
                facts->parameter[ordinal].offset = offset;
                facts->parameter[ordinal].bytes = flags >> 18;
                facts->parameters = ordinal + 1u > facts->parameters ? ordinal + 1u : facts->parameters;
            }
        }
    }
}

static CUresult read_elf(struct image *image, const uint8_t *data, size_t known_bytes) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)data;
    NEED(header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_shentsize == sizeof(Elf64_Shdr) && header->e_shnum,
        CUDA_ERROR_INVALID_IMAGE);
    NEED(header->e_machine == 190 /* EM_CUDA */, CUDA_ERROR_NO_BINARY_FOR_GPU);
    const Elf64_Shdr *section = (const Elf64_Shdr *)(data + header->e_shoff);
    size_t end = header->e_shoff + header->e_shnum * sizeof(*section);
    NEED(known_bytes == 0 || end <= known_bytes, CUDA_ERROR_INVALID_IMAGE);
    const char *names = (const char *)data + section[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB || section[i].sh_link >= header->e_shnum)
            continue;
        const Elf64_Sym *symbol = (const Elf64_Sym *)(data + section[i].sh_offset);
        const char *strings = (const char *)data + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof(*symbol); k++) {
            const char *name = strings + symbol[k].st_name;
            int type = ELF64_ST_TYPE(symbol[k].st_info);
            if (type == STT_FUNC && (symbol[k].st_other & 0x10))
                NEED(add_kernel(image, name, strlen(name)), CUDA_ERROR_OUT_OF_MEMORY);
            else if (type == STT_OBJECT && ELF64_ST_BIND(symbol[k].st_info) != STB_LOCAL && symbol[k].st_size)
                add_global(image, name, strlen(name), symbol[k].st_size);
        }
    }
    for (int i = 0; i < header->e_shnum; i++) {
        const char *name = names + section[i].sh_name;
        if (strncmp(name, ".nv.info.", 9) != 0)
            continue;
        for (uint32_t k = 0; k < image->kernels; k++)
            if (strcmp(image->kernel[k].name, name + 9) == 0)
                read_info(
                    &image->kernel[k], data + section[i].sh_offset, data + section[i].sh_offset + section[i].sh_size);
    }
    return CUDA_SUCCESS;
}

/* ---- fat binary ---- */

static bool unpack_lz4(const uint8_t *from, size_t from_bytes, uint8_t *to, size_t to_bytes) {
    const uint8_t *end = from + from_bytes;
    size_t at = 0;
    while (from < end) {
        uint8_t token = *from++;
        size_t literals = token >> 4, match = token & 15;
        for (uint8_t more = 255; literals >= 15 && more == 255 && from < end; literals += more)
            more = *from++;
        if (literals > (size_t)(end - from) || literals > to_bytes - at)
            return false;
        memcpy(to + at, from, literals);
        at += literals;
        from += literals;
        if (end - from < 2)
            break;
        size_t back = (size_t)(from[0] | from[1] << 8);
        from += 2;
        for (uint8_t more = 255; match >= 15 && more == 255 && from < end; match += more)
            more = *from++;
        match += 4;
        if (!back || back > at || match > to_bytes - at)
            return false;
        for (; match; match--, at++)
            to[at] = to[at - back];
    }
    return at == to_bytes;
}

/* A library of the system, which every package manager is linked against; one of our own would be no better. */
static bool unpack_zstd(const uint8_t *from, size_t from_bytes, uint8_t *to, size_t to_bytes) {
    static _Atomic(void *) library;
    void *opened = atomic_load(&library);
    if (!opened && (opened = dlopen("libzstd.so.1", RTLD_NOW)))
        atomic_store(&library, opened);
    size_t (*decompress)(void *, size_t, const void *, size_t) = NULL;
    if (opened)
        *(void **)&decompress = dlsym(opened, "ZSTD_decompress");
    return decompress && decompress(to, to_bytes, from, from_bytes) == to_bytes;
}

struct member {
    uint16_t kind, unknown;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, unknown2;
    uint16_t minor, major;
    uint32_t arch, name_offset, name_bytes;
    uint64_t flags, zero, unpacked_bytes;
};
enum { MEMBER_PTX = 1, MEMBER_ELF = 2, MEMBER_LZ4 = 0x2000, MEMBER_ZSTD = 0x8000 };

static CUresult read_member(struct image *image, const struct member *member, const uint8_t *data) {
    uint8_t *unpacked = NULL;
    CUresult result = CUDA_SUCCESS;
    if (member->flags & (MEMBER_LZ4 | MEMBER_ZSTD)) {
        bool (*unpack)(const uint8_t *, size_t, uint8_t *, size_t) =
            member->flags & MEMBER_LZ4 ? unpack_lz4 : unpack_zstd;
        unpacked = calloc(1, member->unpacked_bytes + 1);
        if (!unpacked || !unpack(data, member->packed_bytes, unpacked, member->unpacked_bytes))
            goto out;
        data = unpacked;
    }
    if (member->kind == MEMBER_PTX)
        result = read_ptx(image, (const char *)data);
    else if (memcmp(data, ELFMAG, SELFMAG) == 0)
        result = read_elf(image, data, 0);
out:
    free(unpacked);
    return result;
}

/* The higher the better: code of this card's major version and of no later minor one, then PTX of no later version. */
enum { FITS_PTX = 1000, FITS_CODE = 2000, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
static int fit_of(const struct member *member) {
    int major = 0, minor = 0, arch = (int)member->arch;
    cuDeviceGetAttribute(&major, CAPABILITY_MAJOR, 0);
    cuDeviceGetAttribute(&minor, CAPABILITY_MINOR, 0);
    if (arch > 10 * major + minor)
        return 0;
    if (member->kind == MEMBER_PTX)
        return FITS_PTX + arch;
    return arch / 10 == major ? FITS_CODE + arch : 0;
}

/* Read the members of one fit, until there are kernels; `next` is the best fit below it, or -1. */
static CUresult read_fitting(struct image *image, const uint8_t *at, const uint8_t *end, int fit, int *next) {
    *next = -1;
    while (at + sizeof(struct member) <= end && !image->kernels) {
        const struct member *member = (const struct member *)at;
        NEED(member->header_bytes >= 64 && member->bytes <= (uint64_t)(end - at), CUDA_ERROR_INVALID_IMAGE);
        int its = fit_of(member);
        if (its == fit)
            TRY(read_member(image, member, at + member->header_bytes));
        else if (its < fit && its > *next)
            *next = its;
        at += member->header_bytes + member->bytes;
    }
    return CUDA_SUCCESS;
}

static CUresult read_fat(struct image *image, const uint8_t *data) {
    uint16_t header_bytes;
    uint64_t bytes;
    memcpy(&header_bytes, data + 6, 2);
    memcpy(&bytes, data + 8, 8);
    const uint8_t *at = data + header_bytes, *end = at + bytes;
    for (int fit = INT_MAX, next; fit >= 0 && !image->kernels; fit = next)
        TRY(read_fitting(image, at, end, fit, &next));
    return CUDA_SUCCESS;
}

/* ---- any ---- */

static void know_times(struct image *image) {
    for (uint32_t i = 0; i < image->kernels; i++) {
        struct kernel_facts *facts = &image->kernel[i];
        facts->collective = strcmp(facts->name, "gemini_collective") == 0;
        if (strcmp(facts->name, "gemini_spin") == 0 || facts->collective)
            continue;
        facts->fixed_ns = sim_spec_kernel_ns(driver.spec_text, facts->name);
        if (facts->fixed_ns)
            continue;
        facts->work = strncmp(facts->name, "gemini_work_", 12) == 0;
        facts->by_shape = !facts->work && *spec()->profile;
        if (!facts->work)
            facts->fixed_ns = spec()->kernel_ns ? spec()->kernel_ns : 1;
    }
}

CUresult image_read(const void *data, struct image **out) {
    const uint8_t *bytes = data;
    uint32_t magic;
    CUresult result;
    NEED(data, CUDA_ERROR_INVALID_VALUE);
    struct image *image = calloc(1, sizeof(*image));
    NEED(image, CUDA_ERROR_OUT_OF_MEMORY);
    image->references = 1;
    memcpy(&magic, data, 4);
    if (magic == 0x466243b1u) { /* the wrapper that nvcc puts around a fat binary */
        memcpy(&bytes, bytes + 8, sizeof(bytes));
        memcpy(&magic, bytes, 4);
    }
    if (magic == 0xba55ed50u)
        result = read_fat(image, bytes);
    else if (memcmp(bytes, ELFMAG, SELFMAG) == 0)
        result = read_elf(image, bytes, 0);
    else
        result = isprint(bytes[0]) || isspace(bytes[0]) ? read_ptx(image, data) : CUDA_ERROR_INVALID_IMAGE;
    if (result) {
        image_drop(image);
        return result;
    }
    know_times(image);
    *out = image;
    return CUDA_SUCCESS;
}

CUresult image_read_file(const char *path, struct image **out) {
    NEED(path, CUDA_ERROR_INVALID_VALUE);
    FILE *file = fopen(path, "re");
    NEED(file, CUDA_ERROR_FILE_NOT_FOUND);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = bytes >= 0 ? calloc(1, (size_t)bytes + 1) : NULL;
    if (data)
        result = fread(data, 1, (size_t)bytes, file) == (size_t)bytes && bytes >= 4 ? image_read(data, out)
                                                                                    : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    fclose(file);
    return result;
}

void image_drop(struct image *image) {
    if (__atomic_sub_fetch(&image->references, 1, __ATOMIC_ACQ_REL))
        return;
    for (uint32_t i = 0; i < image->kernels; i++)
        free(image->kernel[i].name);
    for (uint32_t i = 0; i < image->globals; i++)
        free(image->global[i].name);
    free(image->kernel);
    free(image->global);
    free(image);
}

const struct kernel_facts *image_kernel(const struct image *image, const char *name) {
    for (uint32_t i = 0; i < image->kernels; i++)
        if (strcmp(image->kernel[i].name, name) == 0)
            return &image->kernel[i];
    return NULL;
}
