package crashtest_test

// The kinds of worker that the test binary can be. The first three are right.
const (
	good        = "good"     // asks the upstream when in doubt
	modest      = "modest"   // leaves a doubt to the operator
	explicit    = "explicit" // says dispatch before the effect, and reserves by the batch
	oneShot     = "one-shot" // ends after each round, to be started again
	noReserve   = "no-reserve"
	clockKey    = "key-from-the-clock"
	deliveryKey = "key-from-a-delivery-counter"
	recordFirst = "record-before-the-effect"
	blind       = "takeover-without-looking"
	skipsErrors = "record-skipped-on-an-error-path"
	noRenewal   = "lease-never-renewed"
	washes      = "release-after-an-ambiguous-failure"
	givesUp     = "completes-when-in-doubt"
	appends     = "csv-appended-without-a-key"
	exits       = "exits-at-once"
	idles       = "never-fetches"
	leaves      = "leaves-a-child"
	crashes     = "crashes-at-a-task"
	picky       = "fetches-one-topic"
	failsDoubt  = "fails-when-in-doubt"
	completer   = "completes-before-the-record"
	renewsLate  = "renews-after-the-lease"
	sleeps      = "begins-after-the-lease"
	looksFirst  = "looks-before-the-reserve"
	releases5xx = "release-after-a-5xx"
	instanceKey = "key-from-the-instance"
	always200   = "records-200-whatever-was-said"
	invents     = "records-another-body"
	naturalKey  = "looks-and-never-reserves"
	pretends    = "completes-and-does-nothing"
	departs     = "leaves-the-process-group" // is of another kind in a session of its own
	remembers   = "remembers-in-memory"
	starts      = "starts-slowly"
	litters     = "leaves-temporary-files"
)
