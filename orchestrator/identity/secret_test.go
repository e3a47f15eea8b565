package identity

import (
	"bytes"
	"testing"
)

func TestSealedMessageOpensForItsKeyAndNodeAlone(t *testing.T) {
	t.Parallel()
	key, err := NewSealKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSealKey()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Seal(key.Public(), "a", []byte("value"))
	if err != nil || bytes.Contains(sealed, []byte("value")) {
		t.Fatalf("sealed as %q: %v", sealed, err)
	}
	if plain, err := key.Open("a", sealed); err != nil || string(plain) != "value" {
		t.Errorf("opened as %q: %v", plain, err)
	}
	if _, err := key.Open("b", sealed); err == nil {
		t.Error("another node's message opened")
	}
	if _, err := other.Open("a", sealed); err == nil {
		t.Error("it opened with another key")
	}
	if _, err := Seal([]byte("short"), "a", nil); err == nil {
		t.Error("it was sealed for something that is not a key")
	}
}

func TestSecretsKeyIsTheSameForEveryHolderOfTheKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := MakeKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := first.SecretsKey()
	b, errB := second.SecretsKey()
	if errA != nil || errB != nil || !bytes.Equal(a, b) || len(a) != 32 {
		t.Errorf("%x and %x: %v, %v", a, b, errA, errB)
	}
}
