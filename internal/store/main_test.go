package store

import (
	"testing"

	"github.com/idemstore/idemstore/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
