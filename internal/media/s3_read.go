package media

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"
)

// window is the number of bytes of one range request. It limits the unused bytes
// if a reader stops early.
const window = 8 << 20

// object reads an object by range requests.
type object struct {
	ctx    context.Context // of the caller of Open
	bucket *bucket
	name   string
	size   int64
	at     int64
	until  int64         // offset of the end of body
	body   io.ReadCloser // bytes from at on; nil: no request yet
}

func (o *object) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	if o.at == o.until {
		o.closeBody()
	}
	if o.body == nil {
		if err := o.request(); err != nil {
			return 0, err
		}
	}
	n, err := o.body.Read(p)
	o.at += int64(n)
	switch {
	case n > 0 || err == nil:
		return n, nil // the next Read returns the error again
	case errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	}
	return 0, sanitize(err)
}

// request requests the next range.
func (o *object) request() error {
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
		return 0, fmt.Errorf("seek to the negative offset %d", offset)
	}
	if offset != o.at {
		o.closeBody()
	}
	o.at = offset
	return offset, nil
}

func (o *object) Close() error {
	o.closeBody()
	return nil
}

func (o *object) closeBody() {
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
}
