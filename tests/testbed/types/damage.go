package main

import (
	"encoding/binary"
	"math/rand/v2"
)

// record is one field of a protobuf message, as bytes.
type record struct {
	tag     uint64
	payload []byte // behind the length, for wire type 2
}

// damage drops, doubles, empties and moves records of a message and of those inside it. What
// comes out is still protobuf, but nothing that Go's encoder writes.
func damage(random *rand.Rand, message []byte) []byte {
	records, ok := split(message)
	if !ok {
		return message
	}
	var out []record
	for _, r := range records {
		inner := r
		if r.tag&7 == 2 && random.IntN(2) == 0 {
			inner.payload = damage(random, r.payload)
		}
		switch random.IntN(12) {
		case 0:
		case 1:
			out = append(out, r, inner)
		case 2:
			if r.tag&7 == 2 {
				inner.payload = nil
			}
			out = append(out, inner)
		default:
			out = append(out, inner)
		}
	}
	if random.IntN(4) == 0 {
		random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return join(out)
}

func join(records []record) []byte {
	var out []byte
	for _, r := range records {
		out = binary.AppendUvarint(out, r.tag)
		if r.tag&7 == 2 {
			out = binary.AppendUvarint(out, uint64(len(r.payload)))
		}
		out = append(out, r.payload...)
	}
	return out
}

func split(message []byte) ([]record, bool) {
	var records []record
	for len(message) > 0 {
		tag, read := binary.Uvarint(message)
		if read <= 0 || tag>>3 == 0 {
			return nil, false
		}
		message = message[read:]
		length := 0
		switch tag & 7 {
		case 0:
			if _, length = binary.Uvarint(message); length <= 0 {
				return nil, false
			}
		case 1:
			length = 8
		case 2:
			size, read := binary.Uvarint(message)
			if read <= 0 || size > uint64(len(message)) {
				return nil, false
			}
			message = message[read:]
			length = int(size)
		default:
			return nil, false
		}
		if length > len(message) {
			return nil, false
		}
		records = append(records, record{tag, message[:length]})
		message = message[length:]
	}
	return records, true
}
