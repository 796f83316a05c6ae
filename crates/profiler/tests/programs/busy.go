// Works for some seconds: in its own functions, and in the kernel, which they ask for random bytes.
package main

import (
	"os"
	"strconv"
	"time"
)

var sink uint64
var buffer [1 << 16]byte

//go:noinline
func ownLeaf(seed uint64) uint64 {
	value := seed
	for i := 0; i < 20000; i++ {
		value = value*6364136223846793005 + value>>7
	}
	return value
}

//go:noinline
func ownLoop(end time.Time) {
	for time.Now().Before(end) {
		sink += ownLeaf(sink + 1)
	}
}

//go:noinline
func ownNative(end time.Time, random *os.File) {
	for time.Now().Before(end) {
		if _, err := random.Read(buffer[:]); err != nil {
			panic(err)
		}
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	random, err := os.Open("/dev/urandom")
	if err != nil {
		panic(err)
	}
	turn := time.Duration(seconds / 20 * 1e9)
	for i := 0; i < 10; i++ {
		ownLoop(time.Now().Add(turn))
		ownNative(time.Now().Add(turn), random)
	}
}
