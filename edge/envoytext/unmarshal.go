package envoytext

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mostNested is how deep messages may stand in one another; Envoy's are five deep.
const mostNested = 100

// Unmarshal is proto.Unmarshal, but takes texts as they are: those of fields, of lists, and
// of maps of texts. It is several times as slow.
func Unmarshal(text []byte, into proto.Message) error {
	proto.Reset(into)
	return read(text, into.ProtoReflect(), mostNested)
}

// read merges what a text says into a message, field by field in its order. What holds no
// text is left to proto, run by run.
func read(text []byte, into protoreflect.Message, deep int) error {
	if deep == 0 {
		return fmt.Errorf("%v: stands more than %d deep", into.Descriptor().FullName(), mostNested)
	}
	fields, run := into.Descriptor().Fields(), 0
	others := func(end int) error {
		if run == end {
			return nil
		}
		return proto.UnmarshalOptions{Merge: true, AllowPartial: true}.Unmarshal(text[run:end], into.Interface())
	}
	for at := 0; at < len(text); {
		number, kind, tag := protowire.ConsumeTag(text[at:])
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, text[at+tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		end, field := at+tag+size, fields.ByNumber(number)
		if kind == protowire.BytesType && holdsText(field) {
			if err := others(at); err != nil {
				return err
			}
			value, _ := protowire.ConsumeBytes(text[at+tag:]) // it was measured above
			if err := set(into, field, value, deep); err != nil {
				return err
			}
			run = end
		}
		at = end
	}
	return others(len(text))
}

// holdsText says that a field is a text or may hold one. A map of anything but texts to
// texts is proto's: no call of Envoy's has one.
func holdsText(field protoreflect.FieldDescriptor) bool {
	switch {
	case field == nil:
		return false
	case field.IsMap():
		return field.MapKey().Kind() == protoreflect.StringKind && field.MapValue().Kind() == protoreflect.StringKind
	}
	return field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.MessageKind
}

// set sets a field that holds text, or adds to it.
func set(into protoreflect.Message, field protoreflect.FieldDescriptor, value []byte, deep int) error {
	isText := field.Kind() == protoreflect.StringKind
	switch {
	case field.IsMap():
		key, of, err := entry(value)
		if err != nil {
			return err
		}
		into.Mutable(field).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(of))
	case field.IsList() && isText:
		into.Mutable(field).List().Append(protoreflect.ValueOfString(string(value)))
	case field.IsList():
		return read(value, into.Mutable(field).List().AppendMutable().Message(), deep-1)
	case isText:
		into.Set(field, protoreflect.ValueOfString(string(value)))
	default:
		return read(value, into.Mutable(field).Message(), deep-1)
	}
	return nil
}

// entry reads one of a map of texts: field 1 is the key, field 2 the value.
func entry(text []byte) (key, value string, err error) {
	for len(text) > 0 {
		number, kind, tag := protowire.ConsumeTag(text)
		if tag < 0 {
			return "", "", fmt.Errorf("an entry of a map: %w", protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(number, kind, text[tag:])
		if size < 0 {
			return "", "", fmt.Errorf("an entry of a map: %w", protowire.ParseError(size))
		}
		if kind == protowire.BytesType {
			switch of, _ := protowire.ConsumeBytes(text[tag:]); number {
			case 1:
				key = string(of)
			case 2:
				value = string(of)
			}
		}
		text = text[tag+size:]
	}
	return key, value, nil
}
