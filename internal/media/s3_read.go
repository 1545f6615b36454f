package media

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"
)

// window is how much of an object is asked for at once: a reader that leaves
// early leaves no more than that behind.
const window = 8 << 20

// object reads an object, where it is read.
type object struct {
	ctx    context.Context // of whoever opened it
	bucket *bucket
	name   string
	size   int64
	at     int64
	until  int64         // where body ends
	body   io.ReadCloser // from at on; nil: none
}

func (o *object) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	if o.at == o.until {
		o.leave()
	}
	if o.body == nil {
		if err := o.ask(); err != nil {
			return 0, err
		}
	}
	n, err := o.body.Read(p)
	o.at += int64(n)
	switch {
	case n > 0 || err == nil:
		return n, nil // an error comes again
	case errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	}
	return 0, plain(err)
}

// ask asks for what is read next.
func (o *object) ask() error {
	until := min(o.at+window, o.size)
	var options minio.GetObjectOptions
	if err := options.SetRange(o.at, until-1); err != nil {
		return err
	}
	body, _, _, err := o.bucket.core.GetObject(o.ctx, o.bucket.name, o.bucket.object(o.name), options)
	if err != nil {
		return o.bucket.failure(err)
	}
	o.body, o.until = body, until
	return nil
}

func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seeking to %d", offset)
	}
	if offset != o.at {
		o.leave()
	}
	o.at = offset
	return offset, nil
}

func (o *object) Close() error {
	o.leave()
	return nil
}

func (o *object) leave() {
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
}
