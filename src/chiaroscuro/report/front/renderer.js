// Points, many of them: WebGL2, or pixels written by hand where there is none.
//
// Both take all epochs at once: frames is (epochs, n, 2) in 16 bits. draw({t, view, size}) shows the
// state between two epochs, with view = {x, y, scale} in pixels: screen = origin + scale * p.

const VERTEX = `#version 300 es
in vec2 one; in vec2 two; in vec4 paint; in float kind;
uniform float t; uniform vec2 half_size; uniform vec2 origin; uniform float scale; uniform float size;
out vec4 colour; flat out int shape;
void main() {
  vec2 p = mix(one, two, t);
  vec2 at = origin + scale * vec2(p.x, -p.y);
  gl_Position = vec4(at.x / half_size.x - 1.0, 1.0 - at.y / half_size.y, 0.0, 1.0);
  gl_PointSize = paint.a > 0.5 ? size : 0.8 * size;
  colour = paint; shape = int(kind + 0.5);
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec4 colour; flat in int shape; uniform float size; out vec4 paint;
void main() {
  vec2 q = 2.0 * gl_PointCoord - 1.0;
  float r = shape == 0 ? length(q) : shape == 1 ? max(abs(q.x), abs(q.y)) * 1.1
    : shape == 2 ? max(abs(q.x) * 1.2 - q.y * 0.6 + 0.35, q.y * 1.1) : (abs(q.x) + abs(q.y));
  float cover = clamp((1.0 - r) * size * 0.5, 0.0, 1.0);
  if (cover <= 0.0) discard;
  paint = vec4(colour.rgb * colour.a * cover, colour.a * cover);
}`;

const MANY = 20000; // points above which a WebGL without a graphics card is slower than our own pixels

function software() {
  const gl = document.createElement("canvas").getContext("webgl2");
  if (!gl) return true;
  const about = gl.getExtension("WEBGL_debug_renderer_info");
  const name = about ? gl.getParameter(about.UNMASKED_RENDERER_WEBGL) : "";
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

export function renderer(canvas, n, forced = null) {
  const pixels = forced ? forced === "canvas" : n > MANY && software();
  const gl = pixels ? null
    : canvas.getContext("webgl2", { antialias: false, preserveDrawingBuffer: true, premultipliedAlpha: true });
  return gl ? withWebGL(gl, canvas) : withPixels(canvas.getContext("2d"), canvas);
}

function withWebGL(gl, canvas) {
  const program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  gl.useProgram(program);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  const at = Object.fromEntries(["one", "two", "paint", "kind"].map((n) => [n, gl.getAttribLocation(program, n)]));
  const set = Object.fromEntries(
    ["t", "half_size", "origin", "scale", "size"].map((n) => [n, gl.getUniformLocation(program, n)]));
  const places = gl.createBuffer();
  const paints = gl.createBuffer();
  const kinds = gl.createBuffer();
  let n = 0;
  let epochs = 0;
  for (const name of Object.values(at)) gl.enableVertexAttribArray(name);
  return {
    kind: "WebGL2",
    frames(points, count) {
      n = count;
      epochs = points.length / (2 * count);
      gl.bindBuffer(gl.ARRAY_BUFFER, places);
      gl.bufferData(gl.ARRAY_BUFFER, points, gl.STATIC_DRAW);
    },
    colours(rgba, shapes) {
      gl.bindBuffer(gl.ARRAY_BUFFER, paints);
      gl.bufferData(gl.ARRAY_BUFFER, rgba, gl.DYNAMIC_DRAW);
      gl.vertexAttribPointer(at.paint, 4, gl.UNSIGNED_BYTE, true, 0, 0);
      gl.bindBuffer(gl.ARRAY_BUFFER, kinds);
      gl.bufferData(gl.ARRAY_BUFFER, shapes, gl.DYNAMIC_DRAW);
      gl.vertexAttribPointer(at.kind, 1, gl.UNSIGNED_BYTE, false, 0, 0);
    },
    draw({ t, view, size }) {
      const low = Math.min(Math.floor(t), epochs - 1);
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.bindBuffer(gl.ARRAY_BUFFER, places);
      gl.vertexAttribPointer(at.one, 2, gl.UNSIGNED_SHORT, true, 0, low * n * 4);
      gl.vertexAttribPointer(at.two, 2, gl.UNSIGNED_SHORT, true, 0, Math.min(low + 1, epochs - 1) * n * 4);
      gl.uniform1f(set.t, t - low);
      gl.uniform2f(set.half_size, canvas.width / 2, canvas.height / 2);
      gl.uniform2f(set.origin, view.x, view.y);
      gl.uniform1f(set.scale, view.scale);
      gl.uniform1f(set.size, size);
      gl.drawArrays(gl.POINTS, 0, n);
    },
    finish() {
      gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    },
  };
}

function withPixels(context, canvas) {
  let points = null;
  let n = 0;
  let epochs = 0;
  let colours = null;
  let image = null;
  return {
    kind: "Canvas",
    frames(all, count) {
      [points, n, epochs] = [all, count, all.length / (2 * count)];
    },
    colours(rgba) {
      colours = new Uint32Array(rgba.buffer, rgba.byteOffset, rgba.length / 4);
    },
    draw({ t, view, size }) {
      const { width, height } = canvas;
      if (!image || image.width !== width || image.height !== height) {
        image = context.createImageData(width, height);
      }
      const pixels = new Uint32Array(image.data.buffer);
      pixels.fill(0);
      const low = Math.min(Math.floor(t), epochs - 1);
      const [a, b] = [low * n * 2, Math.min(low + 1, epochs - 1) * n * 2];
      const part = t - low;
      const k = view.scale / 65535;
      const r = Math.max(1, Math.round(size / 2));
      for (let i = 0; i < 2 * n; i += 2) {
        const x = Math.round(view.x + k * (points[a + i] + part * (points[b + i] - points[a + i])));
        const y = Math.round(view.y - k * (points[a + i + 1] + part * (points[b + i + 1] - points[a + i + 1])));
        if (x < r || y < r || x >= width - r || y >= height - r) continue;
        const colour = colours[i >> 1];
        const inner = colour >>> 24 > 127 ? r : 1;
        for (let dy = 1 - inner; dy < inner; dy += 1) {
          const reach = Math.max(1, Math.round(Math.sqrt(inner * inner - dy * dy)));
          pixels.fill(colour, (y + dy) * width + x - reach + 1, (y + dy) * width + x + reach);
        }
      }
      context.putImageData(image, 0, 0);
    },
    finish() {
      context.getImageData(0, 0, 1, 1);
    },
  };
}
