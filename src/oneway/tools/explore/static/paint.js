// From the server's answers to pixels.

const PAINTED_WIDTH = 640; // small maps are enlarged to about this by a whole number, so that hatching stays fine
const OPAQUE = 0xff000000;

// An answer with its picture decoded and its maps as bytes.
export async function unpack(found) {
  const picture = new Image();
  picture.src = found.picture;
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  for (const run of found.runs) for (const plane of ["target", "prediction", "kl"]) run[plane] = await inflate(run[plane]);
  await picture.decode();
  return { ...found, picture };
}

export function packedColour([red, green, blue]) {
  return (OPAQUE | (blue << 16) | (green << 8) | red) >>> 0; // little-endian RGBA
}

// A colour of the style sheet.
export function themed(name) {
  const [, ...pairs] = getComputedStyle(document.documentElement).getPropertyValue(name).trim().match(/^#(..)(..)(..)$/);
  return pairs.map((pair) => parseInt(pair, 16));
}

// A plane of bytes in the colours of a table; hatched where there is nothing. Without a table, the rest is left clear.
export function painted(plane, { width, height }, ignore, table) {
  const scale = Math.max(1, Math.round(PAINTED_WIDTH / width));
  const image = new ImageData(width * scale, height * scale);
  const pixels = new Uint32Array(image.data.buffer);
  const hatch = [packedColour(themed("--hatch")), packedColour(themed("--hatch-ground"))];
  for (let y = 0, place = 0; y < image.height; y++) {
    const row = Math.floor(y / scale) * width;
    for (let x = 0; x < image.width; x++, place++) {
      const value = plane[row + Math.floor(x / scale)];
      pixels[place] = value === ignore ? hatch[(x + y) % 9 < 2 ? 0 : 1] : table ? table[value] : 0;
    }
  }
  return image;
}

export function put(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export function swatch(colour) {
  const chip = document.createElement("span");
  chip.className = "swatch";
  chip.style.setProperty("--c", `rgb(${colour.join(" ")})`);
  return chip;
}
