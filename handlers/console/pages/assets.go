package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets/*
var assetFiles embed.FS

// asset is a file that pages load. Its URL has a hash of its content, so that browsers may keep it
// forever.
type asset struct {
	name   string // as in its URL
	media  string
	plain  []byte
	zipped []byte // with gzip
}

func (s *Site) loadAssets() error {
	s.assets = make(map[string]*asset)
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := assetFiles.ReadFile(name)
		if err != nil {
			return err
		}
		return s.addAsset(path.Base(name), mediaTypes[path.Ext(name)], content)
	})
	if err == nil && len(s.Logo) > 0 {
		err = s.addAsset("logo", s.LogoType, s.Logo)
	}
	return err
}

// mediaTypes are those of the assets. Package mime would ask the machine.
var mediaTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func (s *Site) addAsset(name, media string, content []byte) error {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	s.assets[name] = &asset{hex.EncodeToString(sum[:6]) + "/" + name, media, content, zipped.Bytes()}
	return nil
}

// assetURL returns the URL of an asset, for templates; an error if there is none of the name.
func (s *Site) assetURL(name string) (string, error) {
	a, ok := s.assets[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %q", name)
	}
	return s.Path + "/assets/" + a.name, nil
}

func (s *Site) serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := s.assets[path.Base(name)]
	if !ok || a.name != name {
		// The page that names it may be older than this build; the next one names the right one.
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	header, content := w.Header(), a.plain
	header.Set("Content-Type", a.media)
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && len(a.zipped) < len(a.plain) {
		header.Set("Content-Encoding", "gzip")
		content = a.zipped
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}
