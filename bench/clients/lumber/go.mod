module lumber

go 1.25

require github.com/elastic/go-lumber v0.1.0

require github.com/klauspost/compress v1.20.3 // indirect
