// letters: how often each letter stands in its input.

const counts = new StaticArray<u64>(26);
const buffer = new ArrayBuffer(65536);
const bytes = Uint8Array.wrap(buffer);

let got = process.stdin.read(buffer);
while (got > 0) {
  for (let i: i32 = 0; i < got; i++) {
    const letter = (<i32>bytes[i] | 32) - 97;
    if (letter >= 0 && letter < 26) counts[letter]++;
  }
  got = process.stdin.read(buffer);
}
for (let letter = 0; letter < 26; letter++) {
  if (counts[letter] > 0) {
    process.stdout.write(String.fromCharCode(97 + letter) + " " + counts[letter].toString() + "\n");
  }
}
