// Works for some seconds: in its own functions, and in native code that they call.
const zlib = require("zlib");

function ownLeaf(seed) {
  let value = seed | 1;
  for (let i = 0; i < 20000; i++) {
    value = (Math.imul(value, 1664525) + (value >>> 7)) | 0;
  }
  return value;
}

function ownLoop(end) {
  let sum = 0;
  while (Date.now() < end) {
    sum = (sum + ownLeaf(sum)) | 0;
  }
  return sum;
}

function ownNative(end, input) {
  let sum = 0;
  while (Date.now() < end) {
    sum += zlib.deflateSync(input, { level: 9 }).length;
  }
  return sum;
}

const half = Number(process.argv[2]) * 500;
const input = Buffer.alloc(1 << 16);
for (let i = 0; i < input.length; i++) {
  input[i] = (Math.imul(i, 2654435761) >>> 27);
}
for (let turn = 0; turn < 10; turn++) {
  ownLoop(Date.now() + half / 10);
  ownNative(Date.now() + half / 10, input);
}
