import java.util.zip.Deflater;

/** Works for some seconds: in its own functions, and in native code that they call. */
public class Busy {
    static int ownLeaf(int seed) {
        int value = seed | 1;
        for (int i = 0; i < 2000; i++) {
            value = value * 1664525 + (value >>> 7);
        }
        return value;
    }

    /** Short, so that it is called often enough to be compiled. */
    static int ownLoop(int sum) {
        for (int i = 0; i < 10; i++) {
            sum += ownLeaf(sum);
        }
        return sum;
    }

    static int ownNative(byte[] input, byte[] output) {
        Deflater deflater = new Deflater(9);
        deflater.setInput(input);
        deflater.finish();
        int bytes = deflater.deflate(output);
        deflater.end();
        return bytes;
    }

    public static void main(String[] arguments) {
        long tenth = (long) (Double.parseDouble(arguments[0]) * 5e7);
        byte[] input = new byte[1 << 10];
        byte[] output = new byte[1 << 11];
        for (int i = 0; i < input.length; i++) {
            input[i] = (byte) ((i * 0x9E3779B1) >>> 27);
        }
        int sum = 0;
        for (int turn = 0; turn < 10; turn++) {
            long end = System.nanoTime() + tenth;
            while (System.nanoTime() < end) {
                sum = ownLoop(sum);
            }
            end += tenth;
            while (System.nanoTime() < end) {
                sum += ownNative(input, output);
            }
        }
        System.out.println(sum);
    }
}
