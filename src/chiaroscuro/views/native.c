/* The SimCLR recipe on uint8 pictures, one picture at a time in the nearest cache.
 *
 * Same parameters, same order and same formulas as reference.py: crop and resize, flip, colour
 * jitter in the drawn order with a clamp after each, grayscale, blur, solarise, normalise. All
 * arithmetic between the uint8 input and the output is float32 in [0, 1]; nothing is rounded in
 * between. Compiled at first use by compiled.py, which mirrors the two structs.
 *
 * Every plane of a picture is S * S floats without gaps, so that colour is one flat loop.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define LANES 8
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
    int32_t top, left, height, width;
    float brightness, contrast, saturation, hue, sigma;
    uint8_t flip, jitter, grayscale, solarise;
    uint8_t order[4];
} Parameters;

typedef struct {
    int32_t channels, size, kernel, antialias;
    float threshold;
    float gain[3], offset[3]; /* float output is x * gain + offset */
} Recipe;

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE };

/* Whether this processor runs code for x86-64-v3: a wheel carries such a library beside the plain. */
int32_t chiaro_wide(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
    return 0;
#endif
}

int64_t chiaro_sizes(void) { return (int64_t)sizeof(Parameters) * 1000 + (int64_t)sizeof(Recipe); }

/* ---- Philox4x32-10: see counter.py ---- */

void chiaro_words(const uint64_t *ids, int64_t n, uint32_t epoch, uint32_t view, int64_t blocks,
                  uint64_t key, uint32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t block = 0; block < blocks; block++) {
            uint32_t c0 = (uint32_t)ids[i], c1 = (uint32_t)(ids[i] >> 32), c2 = epoch;
            uint32_t c3 = (view << 16) + (uint32_t)block;
            uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
            for (int round = 0; round < 10; round++) {
                uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
                c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
                c1 = (uint32_t)b;
                c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
                c3 = (uint32_t)a;
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
            }
            *out++ = c0;
            *out++ = c1;
            *out++ = c2;
            *out++ = c3;
        }
    }
}

/* ---- resize ---- */

/* Bilinear weights from `in` pixels to `out`: out[i] = sum_k weights[k * stride + i] in[start[i] + k]
 * for k < taps, which is returned and never exceeds `room`; the places read lie inside [0, in). */
static int resize_weights(int in, int out, int antialias, int room, int stride, int32_t *start,
                          float *weights) {
    double scale = (double)in / out;
    double wide = antialias && scale > 1 ? scale : 1;
    if (wide == 1 && in > 1) { /* the common case, written so that it vectorises */
        for (int i = 0; i < out; i++) {
            double at = scale * (i + 0.5) - 0.5; /* never above in - 1/2 */
            int first = (int)(at < 0 ? 0 : at);
            first = first > in - 2 ? in - 2 : first;
            double b = at - first;
            b = b < 0 ? 0 : b;
            b = b > 1 ? 1 : b;
            start[i] = first;
            weights[i] = (float)(1 - b);
            weights[stride + i] = (float)b;
        }
        return 2;
    }
    int taps = 1;
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5);
        int first = (int)(centre - wide + 0.5), stop = (int)(centre + wide + 0.5);
        first = centre - wide + 0.5 < 0 ? 0 : first;
        stop = stop > in ? in : stop;
        taps = stop - first > taps ? stop - first : taps;
    }
    taps = taps > room ? room : taps;
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5), total = 0;
        int first = (int)(centre - wide + 0.5), stop = (int)(centre + wide + 0.5);
        first = centre - wide + 0.5 < 0 ? 0 : first;
        stop = stop > in ? in : stop;
        for (int j = first; j < stop; j++) {
            double w = 1 - fabs(j + 0.5 - centre) / wide;
            total += w > 0 ? w : 0;
        }
        start[i] = first > in - taps ? in - taps : first;
        for (int k = 0; k < taps; k++) {
            double w = 1 - fabs(start[i] + k + 0.5 - centre) / wide;
            int inside = start[i] + k >= first && start[i] + k < stop;
            weights[k * stride + i] = inside && w > 0 ? (float)(w / total) : 0.0f;
        }
    }
    return taps;
}

static void column_pass(const uint8_t *restrict in, int64_t pitch, int n, int taps,
                        const float *restrict weight, int stride, float *restrict out) {
    const float unit = 1.0f / 255;
    if (taps == 2) {
        const uint8_t *restrict next = in + pitch;
        float a = weight[0] * unit, b = weight[stride] * unit;
        for (int x = 0; x < n; x++) out[x] = a * in[x] + b * next[x];
        return;
    }
    for (int x = 0; x < n; x++) out[x] = weight[0] * unit * in[x];
    for (int k = 1; k < taps; k++) {
        float w = weight[k * stride] * unit;
        for (int x = 0; x < n; x++) out[x] += w * in[k * pitch + x];
    }
}

/* `out` may be written up to LANES - 1 places beyond n; `in` may be read as far beyond its end. */
static void row_pass(const float *restrict in, const int32_t *restrict start, int n, int taps,
                     const float *restrict weights, int stride, float *restrict out) {
#ifdef __AVX2__
    if (taps == 2) {
        for (int x = 0; x < n; x += LANES) {
            int first = start[x] < start[x + LANES - 1] ? start[x] : start[x + LANES - 1];
            int last = start[x] + start[x + LANES - 1] - first;
            __m256i at = _mm256_loadu_si256((const __m256i *)(start + x));
            __m256 a, b;
            if (last - first < LANES) { /* neighbours: one load and a shuffle for all lanes */
                at = _mm256_sub_epi32(at, _mm256_set1_epi32(first));
                a = _mm256_permutevar8x32_ps(_mm256_loadu_ps(in + first), at);
                b = _mm256_permutevar8x32_ps(_mm256_loadu_ps(in + first + 1), at);
            } else {
                a = _mm256_i32gather_ps(in, at, 4);
                b = _mm256_i32gather_ps(in + 1, at, 4);
            }
            a = _mm256_mul_ps(a, _mm256_loadu_ps(weights + x));
            b = _mm256_mul_ps(b, _mm256_loadu_ps(weights + stride + x));
            _mm256_storeu_ps(out + x, _mm256_add_ps(a, b));
        }
        return;
    }
#endif
    for (int x = 0; x < n; x++) out[x] = weights[x] * in[start[x]];
    for (int k = 1; k < taps; k++)
        for (int x = 0; x < n; x++) out[x] += weights[k * stride + x] * in[start[x] + k];
}

/* ---- colour: torchvision's formulas on float pictures ---- */

static inline float clamp(float x) {
    x = x < 0 ? 0 : x;
    return x > 1 ? 1 : x;
}

static inline float gray(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

static float mean_gray(const float *r, const float *g, const float *b, int n, int channels) {
    lanes sums = {0};
    int i = 0;
    float total = 0;
    if (channels == 3) {
        for (; i + LANES <= n; i += LANES)
            sums += 0.2989f * *(const lanes *)(r + i) + 0.587f * *(const lanes *)(g + i) +
                    0.114f * *(const lanes *)(b + i);
        for (; i < n; i++) total += gray(r[i], g[i], b[i]);
    } else {
        for (; i + LANES <= n; i += LANES) sums += *(const lanes *)(r + i);
        for (; i < n; i++) total += r[i];
    }
    for (int l = 0; l < LANES; l++) total += sums[l];
    return total / n;
}

static void blend(float *restrict x, int n, float factor, float with) {
    float rest = (1 - factor) * with;
    for (int i = 0; i < n; i++) x[i] = clamp(factor * x[i] + rest);
}

static void saturate(float *restrict r, float *restrict g, float *restrict b, int n, float factor) {
    for (int i = 0; i < n; i++) {
        float rest = (1 - factor) * gray(r[i], g[i], b[i]);
        r[i] = clamp(factor * r[i] + rest);
        g[i] = clamp(factor * g[i] + rest);
        b[i] = clamp(factor * b[i] + rest);
    }
}

/* One channel of HSV in RGB: v - c max(0, min(k, 4 - k, 1)), k = (shift + 6 h) mod 6. */
static inline float from_hue(float h6, float shift, float v, float c) {
    float k = shift + h6;
    k = k >= 6 ? k - 6 : k;
    float far = 4 - k;
    k = k < far ? k : far;
    k = k < 1 ? k : 1;
    k = k > 0 ? k : 0;
    return v - c * k;
}

/* Through HSV and back. With c = max - min the saturation cancels: s v = c. */
static void turn_hue(float *restrict r, float *restrict g, float *restrict b, int n, float turn) {
    for (int i = 0; i < n; i++) {
        float x = r[i], y = g[i], z = b[i];
        float v = x > y ? x : y, low = x < y ? x : y;
        v = v > z ? v : z;
        low = low < z ? low : z;
        float c = v - low;
        float over = 1 / (c > 0 ? c : 1);
        float h_blue = 4 + (x - y) * over, h_green = 2 + (z - x) * over, h_red = (y - z) * over;
        float h6 = v == y ? h_green : h_blue;
        h6 = v == x ? h_red : h6;
        h6 += 6 * turn;
        h6 = h6 < 0 ? h6 + 6 : h6;
        h6 = h6 >= 6 ? h6 - 6 : h6;
        r[i] = clamp(from_hue(h6, 5, v, c));
        g[i] = clamp(from_hue(h6, 3, v, c));
        b[i] = clamp(from_hue(h6, 1, v, c));
    }
}

/* ---- blur ---- */

/* out[x] = w[0] at[0][x] + sum_j w[j] (at[-j][x] + at[j][x]), at[j] being `step` floats further on */
static void blur_line(const float *restrict middle, int64_t step, const float *restrict w, int half,
                      int n, float *restrict out) {
    int x = 0;
    for (; x + LANES <= n; x += LANES) {
        lanes sum = w[0] * *(const lanes *)(middle + x);
        for (int j = 1; j <= half; j++)
            sum += w[j] * (*(const lanes *)(middle + x - j * step) +
                           *(const lanes *)(middle + x + j * step));
        *(lanes *)(out + x) = sum;
    }
    for (; x < n; x++) {
        float sum = w[0] * middle[x];
        for (int j = 1; j <= half; j++) sum += w[j] * (middle[x - j * step] + middle[x + j * step]);
        out[x] = sum;
    }
}

/* Separable, reflected at the border (the border pixel is not repeated). `work` has room for
 * (S + 2 half) * S + S + 2 half floats. */
static void blur(float *plane, int S, int half, float sigma, float *work) {
    float w[half + 1];
    double total = 0;
    for (int j = -half; j <= half; j++) total += exp(-0.5 * j * j / ((double)sigma * sigma));
    for (int j = 0; j <= half; j++)
        w[j] = (float)(exp(-0.5 * j * j / ((double)sigma * sigma)) / total);
    float *line = work, *rows = work + S + 2 * half;
    for (int y = 0; y < S; y++) {
        memcpy(line + half, plane + (int64_t)y * S, (size_t)S * sizeof(float));
        for (int j = 1; j <= half; j++) {
            line[half - j] = line[half + j];
            line[half + S - 1 + j] = line[half + S - 1 - j];
        }
        blur_line(line + half, 1, w, half, S, rows + (int64_t)(y + half) * S);
    }
    for (int j = 1; j <= half; j++) {
        size_t bytes = (size_t)S * sizeof(float);
        memcpy(rows + (int64_t)(half - j) * S, rows + (int64_t)(half + j) * S, bytes);
        memcpy(rows + (int64_t)(half + S - 1 + j) * S, rows + (int64_t)(half + S - 1 - j) * S, bytes);
    }
    for (int y = 0; y < S; y++)
        blur_line(rows + (int64_t)(y + half) * S, S, w, half, S, plane + (int64_t)y * S);
}

/* ---- one picture ---- */

typedef struct {
    float *planes, *row, *work, *weights_y, *weights_x;
    int32_t *start_y, *start_x;
    int room, stride;
} Scratch;

static void crop_resize(const uint8_t *image, int H, int W, const Parameters *p, const Recipe *r,
                        const Scratch *s) {
    int S = r->size, stride = s->stride;
    int taps_y = resize_weights(p->height, S, r->antialias, s->room, stride, s->start_y, s->weights_y);
    int taps_x = resize_weights(p->width, S, r->antialias, s->room, stride, s->start_x, s->weights_x);
    if (p->flip) {
        for (int i = 0, j = S - 1; i < j; i++, j--) {
            int32_t at = s->start_x[i];
            s->start_x[i] = s->start_x[j];
            s->start_x[j] = at;
            for (int k = 0; k < taps_x; k++) {
                float *w = s->weights_x + (int64_t)k * stride, weight = w[i];
                w[i] = w[j];
                w[j] = weight;
            }
        }
    }
    for (int x = S; x < stride; x++) s->start_x[x] = s->start_x[S - 1];
    for (int c = 0; c < r->channels; c++) {
        const uint8_t *from = image + ((int64_t)c * H + p->top) * W + p->left;
        for (int y = 0; y < S; y++) {
            column_pass(from + (int64_t)s->start_y[y] * W, W, p->width, taps_y, s->weights_y + y,
                        stride, s->row);
            row_pass(s->row, s->start_x, S, taps_x, s->weights_x, stride,
                     s->planes + ((int64_t)c * S + y) * S);
        }
    }
}

static void jitter(const Parameters *p, int channels, int n, float *r, float *g, float *b) {
    for (int i = 0; i < 4; i++) {
        switch (p->order[i]) {
        case BRIGHTNESS:
            blend(r, channels * n, p->brightness, 0);
            break;
        case CONTRAST:
            blend(r, channels * n, p->contrast, mean_gray(r, g, b, n, channels));
            break;
        case SATURATION:
            if (channels == 3) saturate(r, g, b, n, p->saturation);
            break;
        default:
            if (channels == 3) turn_hue(r, g, b, n, p->hue);
        }
    }
}

static void picture(const uint8_t *image, int H, int W, const Parameters *p, const Recipe *r,
                    const Scratch *s, float *out, uint8_t *bytes) {
    int S = r->size, n = S * S, channels = r->channels;
    float *plane = s->planes, *green = plane + (channels == 3 ? n : 0);
    float *blue = plane + (channels == 3 ? 2 * n : 0);
    crop_resize(image, H, W, p, r, s);
    if (p->jitter) jitter(p, channels, n, plane, green, blue);
    int distinct = channels; /* a gray picture is one plane until it is written */
    if (p->grayscale && channels == 3) {
        for (int i = 0; i < n; i++) plane[i] = gray(plane[i], green[i], blue[i]);
        distinct = 1;
    }
    if (p->sigma > 0 && r->kernel > 1)
        for (int c = 0; c < distinct; c++)
            blur(plane + (int64_t)c * n, S, r->kernel / 2, p->sigma, s->work);
    if (p->solarise) {
        float threshold = r->threshold;
        for (int i = 0; i < distinct * n; i++)
            plane[i] = plane[i] >= threshold ? 1 - plane[i] : plane[i];
    }
    for (int c = 0; c < channels; c++) {
        const float *restrict x = plane + (int64_t)(c < distinct ? c : 0) * n;
        if (bytes) {
            uint8_t *restrict to = bytes + (int64_t)c * n;
            for (int i = 0; i < n; i++) to[i] = (uint8_t)(int32_t)(clamp(x[i]) * 255 + 0.5f);
        } else {
            float *restrict to = out + (int64_t)c * n, gain = r->gain[c], offset = r->offset[c];
            for (int i = 0; i < n; i++) to[i] = gain * x[i] + offset;
        }
    }
}

/* Pictures `first` to `stop` of a batch into `out` (float32) or `bytes` (uint8), whichever is given.
 * `sides` holds each picture's height and width, `widest` the largest side of any crop. Returns 0, or
 * -1 if there is no memory. */
int chiaro_render(const uint8_t *const *images, const int32_t *sides, const Parameters *parameters,
                  const Recipe *recipe, int32_t widest, int64_t first, int64_t stop, float *out,
                  uint8_t *bytes) {
    int S = recipe->size, half = recipe->kernel / 2;
    Scratch s;
    s.stride = (S + LANES - 1) / LANES * LANES;
    s.room = 2 * (int)((recipe->antialias && widest > S ? (double)widest / S : 1) + 1) + 1;
    size_t planes = (size_t)recipe->channels * S * S + LANES, row = (size_t)widest + 2 * LANES;
    size_t work = (size_t)(S + 2 * half) * (S + 1), weights = (size_t)s.room * s.stride;
    size_t floats = planes + row + work + 2 * weights;
    float *memory = calloc(floats + 2 * (size_t)s.stride, sizeof(float));
    if (!memory) return -1;
    s.planes = memory;
    s.row = s.planes + planes;
    s.work = s.row + row;
    s.weights_y = s.work + work;
    s.weights_x = s.weights_y + weights;
    s.start_y = (int32_t *)(memory + floats);
    s.start_x = s.start_y + s.stride;
    int64_t step = (int64_t)recipe->channels * S * S;
    for (int64_t i = first; i < stop; i++)
        picture(images[i], sides[2 * i], sides[2 * i + 1], parameters + i, recipe, &s,
                out ? out + i * step : 0, bytes ? bytes + i * step : 0);
    free(memory);
    return 0;
}
