package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/idemstore/idemstore/client"
)

// csvRead reads, which has no effect.
func csvRead(_ context.Context, t *task) (client.Response, error) {
	file, err := os.Open(t.text("path"))
	if err != nil {
		return client.Response{}, failed(t, err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return client.Response{}, failed(t, err)
	}
	body, err := json.Marshal(rows)
	return client.Response{Status: 200, Body: body}, failed(t, err)
}

// csvWrite writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing, and doing
// it again changes nothing.
func csvWrite(_ context.Context, t *task) (client.Response, error) {
	var rows [][]string
	if err := t.read("rows", &rows); err != nil {
		return client.Response{}, failed(t, err)
	}
	path := t.text("path")
	beside := path + ".tmp." + t.ID
	file, err := os.Create(beside)
	if err != nil {
		return client.Response{}, failed(t, err)
	}
	err = errors.Join(csv.NewWriter(file).WriteAll(rows), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	return client.Response{Status: 200, Body: []byte(path)}, failed(t, err)
}

// syncFolder has a rename outlive the machine.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
